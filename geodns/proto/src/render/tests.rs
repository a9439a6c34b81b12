//! Rendered answers, byte by byte.

use super::*;

const ZONE: &[u8] = b"\x02gb\x04test\x00";

fn records(fill: u8) -> Records {
    Records {
        bytes: vec![fill; 3],
        ..Records::default()
    }
}

fn answer(fill: u8) -> Answer {
    Answer::unsigned(records(fill))
}

#[test]
fn names_are_known_absent_or_foreign() {
    let mut builder = RenderedBuilder::new(ZONE, 7).unwrap();
    builder.name(ZONE, answer(0), []).unwrap();
    builder
        .name(b"\x01a\x02gb\x04test\x00", answer(1), [])
        .unwrap();
    let rendered = builder.build();
    let cases: [(&[u8], NameMatch); 9] = [
        (ZONE, NameMatch::Known(0)),
        (b"\x01a\x02gb\x04test\x00", NameMatch::Known(1)),
        (b"\x01b\x02gb\x04test\x00", NameMatch::Absent { zone_at: 2 }),
        (
            b"\x01b\x01a\x02gb\x04test\x00",
            NameMatch::Absent { zone_at: 4 },
        ),
        // The zone's bytes at the end, but not at the beginning of a label.
        (b"\x03a\x02gb\x04test\x00", NameMatch::Foreign),
        (b"\x01a\x02gc\x04test\x00", NameMatch::Foreign),
        (b"\x04test\x00", NameMatch::Foreign),
        (b"\x00", NameMatch::Foreign),
        (b"", NameMatch::Foreign),
    ];
    for (name, expected) in cases {
        assert_eq!(rendered.find(name), expected, "{name:?}");
    }
    assert_eq!(rendered.names(), 2);
}

#[test]
fn what_cannot_be_held_is_refused() {
    let new = |zone: &[u8]| RenderedBuilder::new(zone, 1).err();
    for zone in [
        &b""[..],
        b"\x02gb",
        b"\x02GB\x00",
        b"\x40a\x00",
        b"\x01a\x00\x00",
    ] {
        assert_eq!(new(zone), Some(RenderError::BadName), "{zone:?}");
    }
    let mut builder = RenderedBuilder::new(ZONE, 1).unwrap();
    let mut add = |name: &[u8], says| builder.name(name, answer(0), says).err();
    assert_eq!(add(ZONE, vec![]), None);
    assert_eq!(add(ZONE, vec![]), Some(RenderError::Duplicate));
    assert_eq!(add(b"A", vec![]), Some(RenderError::BadName));
    let steered = |count| vec![(Kind::A, Says::Steered(vec![answer(0); count]))];
    assert_eq!(add(b"\x01a\x00", steered(3)), None);
    assert_eq!(add(b"\x01b\x00", steered(2)), Some(RenderError::Uneven));
    let mut long = answer(0);
    long.plain.bytes = vec![0; RECORDS_BYTES_MAX + 1];
    assert_eq!(builder.absent(long), Err(RenderError::TooMany));
    assert_eq!(builder.build().answers(), 3);
}

#[test]
fn an_unsigned_zone_holds_its_bytes_once() {
    let mut builder = RenderedBuilder::new(ZONE, 1).unwrap();
    builder.name(ZONE, answer(9), []).unwrap();
    let rendered = builder.build();
    assert_eq!(rendered.bytes_len(), 3);
    let Some(Slot::Fixed(body)) = rendered.slot(0, Kind::Other) else {
        panic!("nodata");
    };
    assert_eq!(rendered.records(body.plain), [9; 3]);
    assert_eq!(rendered.records(body.signed.unwrap()), [9; 3]);
}

#[test]
fn kinds_are_in_order_and_labelled_apart() {
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, index);
        let same = |other: &&Kind| other.as_str() == kind.as_str();
        assert_eq!(Kind::ALL.iter().filter(same).count(), 1);
    }
}
