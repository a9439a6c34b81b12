//! The announcer alone, fed inputs at invented times, and several of them with one store in a seeded world.

use std::sync::LazyLock;

use super::damping::FALLS_MAX;
use super::*;

mod history;
mod world;

/// An arbitrary beginning of time, the same for all.
pub(crate) fn start() -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(epoch);
    *START
}

#[expect(
    clippy::disallowed_methods,
    reason = "an arbitrary epoch for an invented clock"
)]
fn epoch() -> Instant {
    Instant::now()
}

fn at_ms(ms: u64) -> Instant {
    start() + Duration::from_millis(ms)
}

fn at(seconds: u64) -> Instant {
    at_ms(seconds * 1000)
}

const CONFIG: AnnounceConfig = AnnounceConfig {
    up_after: Duration::from_secs(10),
    up_after_max: Duration::from_secs(300),
    min_announced: 2,
    cover: false,
};
const ALL: Reach = Reach {
    backbone: true,
    regions: true,
};
const NO_REGION: Reach = Reach {
    backbone: true,
    regions: false,
};
const NOTHING: Reach = Reach {
    backbone: false,
    regions: false,
};

fn held(until_s: u64) -> Permit {
    Permit::Held { until: at(until_s) }
}

/// One that has come up at 10 s.
fn up() -> Announcer {
    let mut announcer = Announcer::new(CONFIG, at(0));
    announcer.handle_reach(ALL, at(0));
    announcer.handle_timeout(at(10));
    assert_eq!(told(&announcer), (Announce::Up, None));
    announcer
}

const fn told(announcer: &Announcer) -> (Announce, Option<Reason>) {
    (announcer.announce(), announcer.reason())
}

#[test]
fn a_start_is_announced_once_it_has_been_well_for_long_enough() {
    let mut announcer = Announcer::new(CONFIG, at(0));
    assert_eq!(
        told(&announcer),
        (Announce::Withdrawn, Some(Reason::Starting))
    );
    announcer.handle_reach(ALL, at(3));
    assert!(announcer.wants_permit(), "so that the others know");
    announcer.handle_timeout(at_ms(12_999));
    assert_eq!(
        told(&announcer),
        (Announce::Withdrawn, Some(Reason::Starting))
    );
    assert_eq!(announcer.poll_timeout(at_ms(12_999)), Some(at(13)));
    announcer.handle_timeout(at(13));
    assert_eq!(told(&announcer), (Announce::Up, None));
    assert!(!announcer.wants_permit());
    assert_eq!(announcer.amiss().count(), 0);
}

#[test]
fn a_worker_that_stands_still_withdraws_at_once_and_the_way_back_grows() {
    let mut announcer = up();
    let mut now = 20;
    for need in [20, 40, 80, 160, 300, 300] {
        announcer.handle_stalled(true, at(now));
        assert_eq!(
            told(&announcer),
            (Announce::Withdrawn, Some(Reason::Stalled))
        );
        announcer.handle_stalled(false, at(now + 1));
        announcer.handle_timeout(at(now + need));
        let unproven = (Announce::Withdrawn, Some(Reason::Unproven));
        assert_eq!(told(&announcer), unproven, "{need}");
        now += 1 + need;
        announcer.handle_timeout(at(now));
        assert_eq!(told(&announcer), (Announce::Up, None), "{need}");
    }
}

#[test]
fn a_vip_that_is_missing_withdraws_at_once_and_comes_back_as_after_a_stall() {
    let mut announcer = up();
    announcer.handle_vip_missing(true, at(20));
    assert_eq!(told(&announcer), (Announce::Withdrawn, Some(Reason::Vip)));
    assert!(announcer.amiss().eq([Reason::Vip]));
    announcer.handle_vip_missing(false, at(21));
    announcer.handle_timeout(at(40));
    let unproven = (Announce::Withdrawn, Some(Reason::Unproven));
    assert_eq!(told(&announcer), unproven);
    announcer.handle_timeout(at(41));
    assert_eq!(told(&announcer), (Announce::Up, None));
    // From the start on.
    let mut announcer = Announcer::new(CONFIG, at(0));
    announcer.handle_vip_missing(true, at(0));
    announcer.handle_reach(ALL, at(0));
    announcer.handle_timeout(at(1000));
    assert_eq!(told(&announcer), (Announce::Withdrawn, Some(Reason::Vip)));
}

#[test]
fn routes_that_cannot_be_made_are_tried_again_more_and_more_rarely() {
    let mut announcer = Announcer::new(CONFIG, at(0));
    announcer.handle_reach(ALL, at(0));
    announcer.handle_timeout(at(10));
    let mut now = 10;
    for need in [20, 40, 80, 160, 300, 300] {
        assert_eq!(announcer.announce(), Announce::Up, "it tries");
        announcer.handle_shown(false, at(now));
        let failed = (Announce::Withdrawn, Some(Reason::Route));
        assert_eq!(told(&announcer), failed, "{need}");
        assert!(announcer.wants_permit() && !announcer.is_ready());
        announcer.handle_timeout(at(now + need) - Duration::from_millis(1));
        assert_eq!(told(&announcer), failed, "{need}");
        assert!(announcer.amiss().eq([Reason::Route]));
        now += need;
        announcer.handle_timeout(at(now));
    }
    announcer.handle_shown(true, at(now));
    assert_eq!(told(&announcer), (Announce::Up, None));
    assert_eq!(announcer.amiss().count(), 0);
    // As a last resort too.
    let mut announcer = up();
    announcer.handle_reach(NOTHING, at(20));
    assert_eq!(announcer.announce(), Announce::Draining);
    announcer.handle_shown(false, at(20));
    announcer.handle_timeout(at(59));
    assert_eq!(told(&announcer), (Announce::Withdrawn, Some(Reason::Route)));
    announcer.handle_timeout(at(60));
    assert_eq!(announcer.announce(), Announce::Draining);
}

#[test]
fn routes_that_cannot_be_made_are_not_tried_at_every_look_where_nothing_else_is_waited_for() {
    let config = AnnounceConfig {
        up_after: Duration::ZERO,
        up_after_max: Duration::from_secs(4),
        ..CONFIG
    };
    let mut announcer = Announcer::new(config, at(0));
    let mut tries = Vec::new();
    for look in 0..20 * 50 {
        let now = at_ms(look * 20);
        announcer.handle_reach(ALL, now);
        if announcer.announce() == Announce::Up {
            tries.push(look * 20);
            announcer.handle_shown(false, now);
        }
        let failed = (Announce::Withdrawn, Some(Reason::Route));
        assert_eq!(told(&announcer), failed);
    }
    assert_eq!(tries, [0, 2_000, 6_000, 10_000, 14_000, 18_000]);
    announcer.handle_timeout(at(22));
    announcer.handle_shown(true, at(22));
    assert_eq!(told(&announcer), (Announce::Up, None));
}

#[test]
fn a_lost_backbone_drains_and_withdraws_with_a_permit_only() {
    for (permit, announce) in [
        (Permit::Unknown, Announce::Draining),
        (Permit::Refused, Announce::Draining),
        (held(100), Announce::Withdrawn),
        (held(20), Announce::Draining),
    ] {
        let mut announcer = up();
        announcer.handle_reach(NOTHING, at(20));
        let drains = (Announce::Draining, Some(Reason::Backbone));
        assert_eq!(told(&announcer), drains);
        assert!(announcer.wants_permit());
        announcer.handle_permit(permit, at(20));
        assert_eq!(
            told(&announcer),
            (announce, Some(Reason::Backbone)),
            "{permit:?}"
        );
    }
}

#[test]
fn a_permit_that_ends_brings_it_back_draining_and_no_other_moves_it_soon() {
    let mut announcer = up();
    announcer.handle_reach(NOTHING, at(20));
    announcer.handle_permit(held(30), at(20));
    assert!(announcer.is_away());
    announcer.handle_timeout(at(30));
    let drains = (Announce::Draining, Some(Reason::Backbone));
    assert_eq!(told(&announcer), drains);
    announcer.handle_permit(held(300), at(31));
    assert_eq!(told(&announcer), drains, "two falls: not within 40 s");
    announcer.handle_timeout(at_ms(69_999));
    assert_eq!(told(&announcer), drains);
    announcer.handle_timeout(at(70));
    assert_eq!(
        told(&announcer),
        (Announce::Withdrawn, Some(Reason::Backbone))
    );
}

#[test]
fn away_with_a_permit_it_comes_back_when_it_is_well_and_keeps_the_permit_until_then() {
    let mut announcer = up();
    announcer.handle_reach(NOTHING, at(20));
    announcer.handle_permit(held(60), at(20));
    announcer.handle_reach(ALL, at(25));
    assert_eq!(
        told(&announcer),
        (Announce::Withdrawn, Some(Reason::Unproven))
    );
    assert!(announcer.is_away() && announcer.wants_permit());
    announcer.handle_timeout(at(45));
    assert_eq!(told(&announcer), (Announce::Up, None));
    // The permit ends on the way.
    let mut announcer = up();
    announcer.handle_reach(NOTHING, at(20));
    announcer.handle_permit(held(30), at(20));
    announcer.handle_reach(ALL, at(25));
    announcer.handle_timeout(at(30));
    assert_eq!(
        told(&announcer),
        (Announce::Draining, Some(Reason::Unproven))
    );
}

#[test]
fn a_start_without_a_backbone_stays_withdrawn_whatever_permit_it_has() {
    for up_after_s in [0, 10] {
        for permit in [Permit::Unknown, Permit::Refused, held(5), held(100_000)] {
            let config = AnnounceConfig {
                up_after: Duration::from_secs(up_after_s),
                ..CONFIG
            };
            let mut announcer = Announcer::new(config, at(0));
            announcer.handle_reach(NOTHING, at(0));
            announcer.handle_permit(permit, at(1));
            for seconds in [1, 4, 5, 9, 10, 11, 60, 3600] {
                announcer.handle_timeout(at(seconds));
                assert_eq!(announcer.announce(), Announce::Withdrawn, "{permit:?}");
                assert!(announcer.wants_permit() && !announcer.is_away());
            }
            let backbone = (Announce::Withdrawn, Some(Reason::Backbone));
            assert_eq!(told(&announcer), backbone);
            announcer.handle_reach(ALL, at(3601));
            assert_eq!(announcer.announce() == Announce::Up, up_after_s == 0);
            announcer.handle_timeout(at(3601 + up_after_s));
            assert_eq!(told(&announcer), (Announce::Up, None), "{permit:?}");
        }
    }
}

#[test]
fn one_that_had_a_link_once_is_a_last_resort() {
    let mut announcer = Announcer::new(CONFIG, at(0));
    announcer.handle_reach(NO_REGION, at(0));
    announcer.handle_reach(NOTHING, at(1));
    announcer.handle_permit(Permit::Refused, at(1));
    announcer.handle_timeout(at(9));
    assert_eq!(announcer.announce(), Announce::Withdrawn);
    announcer.handle_timeout(at(10));
    let drains = (Announce::Draining, Some(Reason::Backbone));
    assert_eq!(told(&announcer), drains);
    announcer.handle_reach(ALL, at(11));
    announcer.handle_timeout(at(20));
    let starting = (Announce::Draining, Some(Reason::Starting));
    assert_eq!(told(&announcer), starting);
    announcer.handle_timeout(at(21));
    assert_eq!(told(&announcer), (Announce::Up, None));
}

#[test]
fn a_region_that_is_gone_for_long_drains_and_a_flow_cache_changes_nothing() {
    let mut announcer = up();
    announcer.handle_flow_cache(false, at(20));
    assert_eq!(told(&announcer), (Announce::Up, None));
    assert!(announcer.amiss().eq([Reason::FlowCache]));
    announcer.handle_reach(NO_REGION, at(20));
    announcer.handle_permit(held(300), at(20));
    assert_eq!(told(&announcer), (Announce::Up, None));
    announcer.handle_timeout(at(25));
    assert_eq!(told(&announcer), (Announce::Draining, Some(Reason::Region)));
    assert!(announcer.amiss().eq([Reason::Region, Reason::FlowCache]));
    announcer.handle_reach(ALL, at(30));
    announcer.handle_timeout(at(49));
    assert_eq!(
        told(&announcer),
        (Announce::Draining, Some(Reason::Unproven))
    );
    announcer.handle_timeout(at(50));
    assert_eq!(told(&announcer), (Announce::Up, None));
}

#[test]
fn orders_are_followed_at_once_and_are_no_falls() {
    let mut announcer = up();
    for round in 0..20 {
        let now = at(20 + round);
        announcer.handle_order(Order::Drain, now);
        assert_eq!(told(&announcer), (Announce::Draining, Some(Reason::Drain)));
        announcer.handle_order(Order::Withdraw, now);
        assert_eq!(told(&announcer), (Announce::Withdrawn, Some(Reason::Drain)));
        assert!(announcer.wants_permit() && !announcer.is_away());
        announcer.handle_order(Order::Serve, now);
        assert_eq!(told(&announcer), (Announce::Up, None));
    }
    // One that has not come up yet is not brought up by an order to drain.
    let mut announcer = Announcer::new(CONFIG, at(0));
    announcer.handle_reach(ALL, at(0));
    announcer.handle_order(Order::Drain, at(1));
    assert_eq!(announcer.announce(), Announce::Withdrawn);
}

#[test]
fn with_a_cover_the_first_waits_for_others_that_are_about_to_come_too() {
    let known = |announced, ready| Peers::Known { announced, ready };
    for (cover, peers, announce) in [
        (true, known(0, 0), Announce::Withdrawn),
        (true, known(0, 1), Announce::Up),
        (true, known(1, 0), Announce::Up),
        (true, Peers::Unknown, Announce::Up),
        (false, known(0, 0), Announce::Up),
    ] {
        let config = AnnounceConfig { cover, ..CONFIG };
        let mut announcer = Announcer::new(config, at(0));
        announcer.handle_peers(peers, at(0));
        announcer.handle_reach(ALL, at(0));
        announcer.handle_timeout(at(10));
        assert_eq!(announcer.announce(), announce, "{cover} {peers:?}");
        assert!(announcer.is_ready());
        announcer.handle_timeout(at(10) + PEERS_PATIENCE);
        assert_eq!(announcer.announce(), Announce::Up, "not for ever");
    }
}

#[test]
fn names_are_distinct() {
    let mut names: Vec<_> = Reason::ALL.map(Reason::as_str).to_vec();
    names.extend(Announce::ALL.map(Announce::as_str));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Reason::ALL.len() + Announce::ALL.len());
}
