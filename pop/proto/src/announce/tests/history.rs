//! What outlives a process.

use super::*;

const NOW_S: u64 = 1_764_533_400;

fn text(lines: &[&str]) -> String {
    let lines = lines.iter().map(|line| format!("{line}\n"));
    std::iter::once("firsthop falls 1\n".to_owned())
        .chain(lines)
        .collect()
}

fn read(lines: &[&str]) -> Result<History, HistoryError> {
    History::parse(text(lines).as_bytes(), NOW_S)
}

#[test]
fn a_history_is_read_as_it_is_written_and_nothing_else_is_one() {
    let written = text(&["announced", "1764530000", "1764533399"]);
    let history = History::parse(written.as_bytes(), NOW_S).unwrap();
    assert_eq!(history.falls(), 3);
    assert_eq!(history.text(NOW_S), written);
    assert_eq!(read(&["away"]), Ok(History::default()));
    let ended = text(&["away", "1764530000", "1764533399"]);
    assert_eq!(history.ended().text(NOW_S), ended);
    // What is older than an hour is forgotten, and order does not count.
    let old = read(&["away", "1764533399", "1764529800", "1764529801", "0"]).unwrap();
    assert_eq!(old.text(NOW_S), text(&["away", "1764529801", "1764533399"]));
    // A clock that was set back.
    let future = read(&["away", "1864533400"]).unwrap();
    assert_eq!(future.text(NOW_S), text(&["away", "1764533400"]));

    let falls = ["1764533399"; FALLS_MAX + 1];
    let too_many = [&["away"][..], &falls].concat();
    assert_eq!(read(&too_many[..FALLS_MAX + 1]).unwrap().falls(), FALLS_MAX);
    for (lines, error) in [
        (&[][..], HistoryError::State),
        (&["gone"], HistoryError::State),
        (&["away", ""], HistoryError::Fall),
        (&["away", "+1764533399"], HistoryError::Fall),
        (&["away", "01764533399"], HistoryError::Fall),
        (&["away", "18446744073709551616"], HistoryError::Fall),
        (&too_many, HistoryError::Falls),
    ] {
        assert_eq!(read(lines), Err(error), "{lines:?}");
    }
    let long = text(&["away", &"1".repeat(HISTORY_BYTES_MAX)]);
    for (bytes, error) in [
        (&b""[..], HistoryError::Text),
        (b"firsthop falls 1\naway\n17645", HistoryError::Text),
        (b"firsthop falls 1\n\xff\n", HistoryError::Text),
        (long.as_bytes(), HistoryError::Text),
        (b"firsthop falls 2\naway\n", HistoryError::Head),
        (b"\0\0\0\n", HistoryError::Head),
    ] {
        assert_eq!(History::parse(bytes, NOW_S), Err(error));
    }
}

/// Starts where `before` ended, and says how long it takes to come up, and what it leaves behind when it is up.
fn life(before: &[u8], start_s: u64) -> (u64, String) {
    let unix_s = |after_s: u64| NOW_S + start_s + after_s;
    let mut announcer = Announcer::new(CONFIG, at(start_s));
    let history = History::parse(before, unix_s(0)).unwrap();
    announcer.handle_history(&history, at(start_s));
    announcer.handle_reach(ALL, at(start_s));
    for second in 0..1000 {
        announcer.handle_timeout(at(start_s + second));
        if announcer.announce() == Announce::Up {
            let left = announcer.history(at(start_s + second));
            return (second, left.text(unix_s(second)));
        }
    }
    panic!("it does not come up");
}

#[test]
fn a_crash_loop_comes_back_more_and_more_slowly_and_an_orderly_restart_does_not() {
    let away = text(&["away"]);
    let (took, mut left) = life(away.as_bytes(), 0);
    assert_eq!((took, left.as_str()), (10, text(&["announced"]).as_str()));
    let mut now = took;
    for need in [20, 40, 80, 160, 300, 300] {
        // It dies a second after it came up, and is started again at once.
        now += 1;
        let (took, leaves) = life(left.as_bytes(), now);
        assert_eq!(took, need);
        now += took;
        left = leaves;
    }
    assert_eq!(left.lines().count(), 2 + 6);
    // Ended as it was told: the falls count on, that is none.
    let ended = History::parse(left.as_bytes(), NOW_S + now)
        .unwrap()
        .ended();
    let ended = ended.text(NOW_S + now);
    assert_eq!(life(ended.as_bytes(), now).0, 300);
    // An hour later all is forgotten.
    let (took, left) = life(ended.as_bytes(), now + 3600);
    assert_eq!((took, left.as_str()), (10, text(&["announced"]).as_str()));
}

#[test]
fn falls_of_this_process_and_of_those_before_add_up() {
    let mut announcer = Announcer::new(CONFIG, at(0));
    let mark = announcer.history_mark();
    let history = read(&["away", "1764533000"]).unwrap();
    announcer.handle_history(&history, at(0));
    announcer.handle_reach(ALL, at(0));
    assert_ne!(announcer.history_mark(), mark);
    assert_eq!(
        (announcer.falls(at(0)), announcer.need(at(0)).as_secs()),
        (1, 20)
    );
    announcer.handle_timeout(at(20));
    assert_eq!(told(&announcer), (Announce::Up, None));
    let mark = announcer.history_mark();
    announcer.handle_timeout(at(21));
    assert_eq!(announcer.history_mark(), mark);
    announcer.handle_stalled(true, at(30));
    assert_ne!(announcer.history_mark(), mark);
    let left = announcer.history(at(30)).text(NOW_S + 30);
    assert_eq!(left, text(&["away", "1764533000", "1764533430"]));
    // 400 s before it began, and an hour.
    assert_eq!(announcer.falls(at(3200)), 1);
}

#[test]
fn other_settings_hold_from_there_on_and_move_nobody_who_is_up() {
    let quick = AnnounceConfig {
        up_after: Duration::from_secs(2),
        ..CONFIG
    };
    let slow = AnnounceConfig {
        up_after: Duration::from_secs(200),
        ..CONFIG
    };
    let mut announcer = Announcer::new(CONFIG, at(0));
    announcer.handle_reach(ALL, at(0));
    announcer.set_config(quick, at(5));
    assert_eq!(announcer.announce(), Announce::Withdrawn, "from there on");
    announcer.handle_timeout(at(7));
    assert_eq!(told(&announcer), (Announce::Up, None));
    announcer.set_config(slow, at(8));
    assert_eq!(told(&announcer), (Announce::Up, None));
    announcer.handle_stalled(true, at(9));
    announcer.handle_stalled(false, at(10));
    announcer.handle_timeout(at(309));
    assert_eq!(
        told(&announcer),
        (Announce::Withdrawn, Some(Reason::Unproven))
    );
    announcer.handle_timeout(at(310));
    assert_eq!(told(&announcer), (Announce::Up, None), "up_after_max");
    // A longer way for one that is on it.
    let mut announcer = Announcer::new(CONFIG, at(0));
    announcer.handle_reach(ALL, at(0));
    announcer.set_config(slow, at(5));
    announcer.handle_timeout(at(199));
    assert_eq!(announcer.announce(), Announce::Withdrawn);
    announcer.handle_timeout(at(200));
    assert_eq!(announcer.announce(), Announce::Up);
}
