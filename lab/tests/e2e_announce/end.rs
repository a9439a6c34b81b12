//! SIGTERM: the drain of an order, and then the end. As by default, a drain may take as long as the linger alone does.

use super::*;

const LINGER: Duration = Duration::from_secs(8);

#[test]
fn sigterm_is_the_same_drain_and_then_the_end() {
    in_namespace(|| {
        let redis = Redis::start().unwrap();
        let mut talk = Talk::begin(&redis, |topology| {
            let linger_s = u32::try_from(LINGER.as_secs()).unwrap();
            topology.network.drain_max_s = linger_s;
            let anycast = topology.network.anycast.as_mut().unwrap();
            anycast.linger_s = linger_s;
        });
        talk.network.terminate("p1").unwrap();
        let (sent, lost) = talk.talk_until(|| metrics(&[]) == announced(200));
        assert_eq!(lost, 0, "of {sent}");
        wait_announced(&[], None, SOON);
        let withdrawn = clock::now();
        // As long as routers may still bring something, it is served.
        let late = withdrawn + LINGER - Duration::from_secs(1);
        wait::until_true("the end of the linger to come near", LINGER, || {
            assert_eq!(metrics(&[]), NOTHING);
            clock::now() > late
        })
        .unwrap();
        let late = clock::now() + Duration::from_millis(300);
        let (sent, lost) = talk.talk_until(|| clock::now() > late);
        assert!(sent > 0);
        assert_eq!(lost, 0, "late ones, of {sent}");
        let status = talk.network.wait_end("p1").unwrap();
        let lingered = clock::now() - withdrawn;
        eprintln!("it ended {lingered:?} after it had withdrawn");
        assert!(lingered >= LINGER, "{lingered:?}");
        assert_eq!(status.code(), Some(0));
        assert_eq!(metrics(&[]), NOTHING);
    });
}
