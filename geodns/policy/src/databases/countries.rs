//! Countries: their continent, and one place that stands for each when only the country of a client is known.
//!
//! Codes are ISO 3166-1 alpha-2, and `XK` as databases write it. The place is where many of a country's clients are, not its
//! middle, which for Canada or Russia is where nobody is: the city of the country's most populous time zone in `zone.tab`
//! of the tz database (public domain). Exceptions: of the United States the centre of population (US Census Bureau, 2020); of
//! places without a time zone of their own (`BV`, `HM`, `XK`) the place itself. Continents are as geolocation databases assign them.

use topology::Continent;

use crate::facts::{Country, Place, PlaceOf};

/// What is known of a country.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountryFacts {
    /// Its continent.
    pub continent: Continent,
    /// The place that stands for it.
    pub place: Place,
}

/// What is known of a country; `None` for a code that names none.
#[must_use]
pub fn of(country: Country) -> Option<CountryFacts> {
    let code = country.code().as_bytes();
    let row = COUNTRIES.binary_search_by(|row| row.code.as_slice().cmp(code));
    Some(COUNTRIES.get(row.ok()?)?.facts)
}

struct Row {
    code: [u8; 2],
    facts: CountryFacts,
}

/// Coordinates in tenths of a degree.
const fn row(
    code: &[u8; 2],
    continent: Continent,
    latitude_tenths: i16,
    longitude_tenths: i16,
) -> Row {
    Row {
        code: *code,
        facts: CountryFacts {
            continent,
            place: Place {
                latitude_tenths,
                longitude_tenths,
                of: PlaceOf::Country,
            },
        },
    }
}

/// In order of their codes.
#[rustfmt::skip]
const COUNTRIES: &[Row] = &[
    row(b"AD", Continent::Eu, 425, 15),
    row(b"AE", Continent::As, 253, 553),
    row(b"AF", Continent::As, 345, 692),
    row(b"AG", Continent::Na, 170, -618),
    row(b"AI", Continent::Na, 182, -631),
    row(b"AL", Continent::Eu, 413, 198),
    row(b"AM", Continent::As, 402, 445),
    row(b"AO", Continent::Af, -88, 132),
    row(b"AQ", Continent::An, -778, 1666),
    row(b"AR", Continent::Sa, -346, -584),
    row(b"AS", Continent::Oc, -143, -1707),
    row(b"AT", Continent::Eu, 482, 163),
    row(b"AU", Continent::Oc, -339, 1512),
    row(b"AW", Continent::Na, 125, -700),
    row(b"AX", Continent::Eu, 601, 200),
    row(b"AZ", Continent::As, 404, 498),
    row(b"BA", Continent::Eu, 439, 184),
    row(b"BB", Continent::Na, 131, -596),
    row(b"BD", Continent::As, 237, 904),
    row(b"BE", Continent::Eu, 508, 43),
    row(b"BF", Continent::Af, 124, -15),
    row(b"BG", Continent::Eu, 427, 233),
    row(b"BH", Continent::As, 264, 506),
    row(b"BI", Continent::Af, -34, 294),
    row(b"BJ", Continent::Af, 65, 26),
    row(b"BL", Continent::Na, 179, -628),
    row(b"BM", Continent::Na, 323, -648),
    row(b"BN", Continent::As, 49, 1149),
    row(b"BO", Continent::Sa, -165, -682),
    row(b"BQ", Continent::Na, 122, -683),
    row(b"BR", Continent::Sa, -235, -466),
    row(b"BS", Continent::Na, 251, -774),
    row(b"BT", Continent::As, 275, 896),
    row(b"BV", Continent::An, -544, 34),
    row(b"BW", Continent::Af, -246, 259),
    row(b"BY", Continent::Eu, 539, 276),
    row(b"BZ", Continent::Na, 175, -882),
    row(b"CA", Continent::Na, 436, -794),
    row(b"CC", Continent::As, -122, 969),
    row(b"CD", Continent::Af, -43, 153),
    row(b"CF", Continent::Af, 44, 186),
    row(b"CG", Continent::Af, -43, 153),
    row(b"CH", Continent::Eu, 474, 85),
    row(b"CI", Continent::Af, 53, -40),
    row(b"CK", Continent::Oc, -212, -1598),
    row(b"CL", Continent::Sa, -334, -707),
    row(b"CM", Continent::Af, 40, 97),
    row(b"CN", Continent::As, 312, 1215),
    row(b"CO", Continent::Sa, 46, -741),
    row(b"CR", Continent::Na, 99, -841),
    row(b"CU", Continent::Na, 231, -824),
    row(b"CV", Continent::Af, 149, -235),
    row(b"CW", Continent::Na, 122, -690),
    row(b"CX", Continent::Oc, -104, 1057),
    row(b"CY", Continent::Eu, 352, 334),
    row(b"CZ", Continent::Eu, 501, 144),
    row(b"DE", Continent::Eu, 525, 134),
    row(b"DJ", Continent::Af, 116, 432),
    row(b"DK", Continent::Eu, 557, 126),
    row(b"DM", Continent::Na, 153, -614),
    row(b"DO", Continent::Na, 185, -699),
    row(b"DZ", Continent::Af, 368, 30),
    row(b"EC", Continent::Sa, -22, -798),
    row(b"EE", Continent::Eu, 594, 248),
    row(b"EG", Continent::Af, 300, 312),
    row(b"EH", Continent::Af, 272, -132),
    row(b"ER", Continent::Af, 153, 389),
    row(b"ES", Continent::Eu, 404, -37),
    row(b"ET", Continent::Af, 90, 387),
    row(b"FI", Continent::Eu, 602, 250),
    row(b"FJ", Continent::Oc, -181, 1784),
    row(b"FK", Continent::Sa, -517, -578),
    row(b"FM", Continent::Oc, 70, 1582),
    row(b"FO", Continent::Eu, 620, -68),
    row(b"FR", Continent::Eu, 489, 23),
    row(b"GA", Continent::Af, 4, 94),
    row(b"GB", Continent::Eu, 515, -1),
    row(b"GD", Continent::Na, 120, -618),
    row(b"GE", Continent::As, 417, 448),
    row(b"GF", Continent::Sa, 49, -523),
    row(b"GG", Continent::Eu, 494, -25),
    row(b"GH", Continent::Af, 56, -2),
    row(b"GI", Continent::Eu, 361, -54),
    row(b"GL", Continent::Na, 642, -517),
    row(b"GM", Continent::Af, 135, -166),
    row(b"GN", Continent::Af, 95, -137),
    row(b"GP", Continent::Na, 162, -615),
    row(b"GQ", Continent::Af, 38, 88),
    row(b"GR", Continent::Eu, 380, 237),
    row(b"GS", Continent::An, -543, -365),
    row(b"GT", Continent::Na, 146, -905),
    row(b"GU", Continent::Oc, 135, 1448),
    row(b"GW", Continent::Af, 118, -156),
    row(b"GY", Continent::Sa, 68, -582),
    row(b"HK", Continent::As, 223, 1142),
    row(b"HM", Continent::An, -531, 735),
    row(b"HN", Continent::Na, 141, -872),
    row(b"HR", Continent::Eu, 458, 160),
    row(b"HT", Continent::Na, 185, -723),
    row(b"HU", Continent::Eu, 475, 191),
    row(b"ID", Continent::As, -62, 1068),
    row(b"IE", Continent::Eu, 533, -62),
    row(b"IL", Continent::As, 318, 352),
    row(b"IM", Continent::Eu, 542, -45),
    row(b"IN", Continent::As, 225, 884),
    row(b"IO", Continent::As, -73, 724),
    row(b"IQ", Continent::As, 334, 444),
    row(b"IR", Continent::As, 357, 514),
    row(b"IS", Continent::Eu, 642, -218),
    row(b"IT", Continent::Eu, 419, 125),
    row(b"JE", Continent::Eu, 492, -21),
    row(b"JM", Continent::Na, 180, -768),
    row(b"JO", Continent::As, 320, 359),
    row(b"JP", Continent::As, 356, 1397),
    row(b"KE", Continent::Af, -13, 368),
    row(b"KG", Continent::As, 429, 746),
    row(b"KH", Continent::As, 116, 1049),
    row(b"KI", Continent::Oc, 14, 1730),
    row(b"KM", Continent::Af, -117, 433),
    row(b"KN", Continent::Na, 173, -627),
    row(b"KP", Continent::As, 390, 1258),
    row(b"KR", Continent::As, 376, 1270),
    row(b"KW", Continent::As, 293, 480),
    row(b"KY", Continent::Na, 193, -814),
    row(b"KZ", Continent::As, 432, 770),
    row(b"LA", Continent::As, 180, 1026),
    row(b"LB", Continent::As, 339, 355),
    row(b"LC", Continent::Na, 140, -610),
    row(b"LI", Continent::Eu, 472, 95),
    row(b"LK", Continent::As, 69, 798),
    row(b"LR", Continent::Af, 63, -108),
    row(b"LS", Continent::Af, -295, 275),
    row(b"LT", Continent::Eu, 547, 253),
    row(b"LU", Continent::Eu, 496, 62),
    row(b"LV", Continent::Eu, 570, 241),
    row(b"LY", Continent::Af, 329, 132),
    row(b"MA", Continent::Af, 336, -76),
    row(b"MC", Continent::Eu, 437, 74),
    row(b"MD", Continent::Eu, 470, 288),
    row(b"ME", Continent::Eu, 424, 193),
    row(b"MF", Continent::Na, 181, -631),
    row(b"MG", Continent::Af, -189, 475),
    row(b"MH", Continent::Oc, 72, 1712),
    row(b"MK", Continent::Eu, 420, 214),
    row(b"ML", Continent::Af, 126, -80),
    row(b"MM", Continent::As, 168, 962),
    row(b"MN", Continent::As, 479, 1069),
    row(b"MO", Continent::As, 222, 1135),
    row(b"MP", Continent::Oc, 152, 1458),
    row(b"MQ", Continent::Na, 146, -611),
    row(b"MR", Continent::Af, 181, -160),
    row(b"MS", Continent::Na, 167, -622),
    row(b"MT", Continent::Eu, 359, 145),
    row(b"MU", Continent::Af, -202, 575),
    row(b"MV", Continent::As, 42, 735),
    row(b"MW", Continent::Af, -158, 350),
    row(b"MX", Continent::Na, 194, -992),
    row(b"MY", Continent::As, 32, 1017),
    row(b"MZ", Continent::Af, -260, 326),
    row(b"NA", Continent::Af, -226, 171),
    row(b"NC", Continent::Oc, -223, 1664),
    row(b"NE", Continent::Af, 135, 21),
    row(b"NF", Continent::Oc, -290, 1680),
    row(b"NG", Continent::Af, 64, 34),
    row(b"NI", Continent::Na, 122, -863),
    row(b"NL", Continent::Eu, 524, 49),
    row(b"NO", Continent::Eu, 599, 108),
    row(b"NP", Continent::As, 277, 853),
    row(b"NR", Continent::Oc, -5, 1669),
    row(b"NU", Continent::Oc, -190, -1699),
    row(b"NZ", Continent::Oc, -369, 1748),
    row(b"OM", Continent::As, 236, 586),
    row(b"PA", Continent::Na, 90, -795),
    row(b"PE", Continent::Sa, -120, -770),
    row(b"PF", Continent::Oc, -175, -1496),
    row(b"PG", Continent::Oc, -95, 1472),
    row(b"PH", Continent::As, 146, 1210),
    row(b"PK", Continent::As, 249, 670),
    row(b"PL", Continent::Eu, 522, 210),
    row(b"PM", Continent::Na, 470, -563),
    row(b"PN", Continent::Oc, -251, -1301),
    row(b"PR", Continent::Na, 185, -661),
    row(b"PS", Continent::As, 315, 345),
    row(b"PT", Continent::Eu, 387, -91),
    row(b"PW", Continent::Oc, 73, 1345),
    row(b"PY", Continent::Sa, -253, -577),
    row(b"QA", Continent::As, 253, 515),
    row(b"RE", Continent::Af, -209, 555),
    row(b"RO", Continent::Eu, 444, 261),
    row(b"RS", Continent::Eu, 448, 205),
    row(b"RU", Continent::Eu, 558, 376),
    row(b"RW", Continent::Af, -20, 301),
    row(b"SA", Continent::As, 246, 467),
    row(b"SB", Continent::Oc, -95, 1602),
    row(b"SC", Continent::Af, -47, 555),
    row(b"SD", Continent::Af, 156, 325),
    row(b"SE", Continent::Eu, 593, 180),
    row(b"SG", Continent::As, 13, 1038),
    row(b"SH", Continent::Af, -159, -57),
    row(b"SI", Continent::Eu, 460, 145),
    row(b"SJ", Continent::Eu, 780, 160),
    row(b"SK", Continent::Eu, 482, 171),
    row(b"SL", Continent::Af, 85, -132),
    row(b"SM", Continent::Eu, 439, 125),
    row(b"SN", Continent::Af, 147, -174),
    row(b"SO", Continent::Af, 21, 454),
    row(b"SR", Continent::Sa, 58, -552),
    row(b"SS", Continent::Af, 48, 316),
    row(b"ST", Continent::Af, 3, 67),
    row(b"SV", Continent::Na, 137, -892),
    row(b"SX", Continent::Na, 180, -630),
    row(b"SY", Continent::As, 335, 363),
    row(b"SZ", Continent::Af, -263, 311),
    row(b"TC", Continent::Na, 215, -711),
    row(b"TD", Continent::Af, 121, 150),
    row(b"TF", Continent::An, -494, 702),
    row(b"TG", Continent::Af, 61, 12),
    row(b"TH", Continent::As, 138, 1005),
    row(b"TJ", Continent::As, 386, 688),
    row(b"TK", Continent::Oc, -94, -1712),
    row(b"TL", Continent::Oc, -86, 1256),
    row(b"TM", Continent::As, 380, 584),
    row(b"TN", Continent::Af, 368, 102),
    row(b"TO", Continent::Oc, -211, -1752),
    row(b"TR", Continent::As, 410, 290),
    row(b"TT", Continent::Na, 106, -615),
    row(b"TV", Continent::Oc, -85, 1792),
    row(b"TW", Continent::As, 250, 1215),
    row(b"TZ", Continent::Af, -68, 393),
    row(b"UA", Continent::Eu, 504, 305),
    row(b"UG", Continent::Af, 3, 324),
    row(b"UM", Continent::Oc, 282, -1774),
    row(b"US", Continent::Na, 374, -925),
    row(b"UY", Continent::Sa, -349, -562),
    row(b"UZ", Continent::As, 413, 693),
    row(b"VA", Continent::Eu, 419, 124),
    row(b"VC", Continent::Na, 132, -612),
    row(b"VE", Continent::Sa, 105, -669),
    row(b"VG", Continent::Na, 184, -646),
    row(b"VI", Continent::Na, 184, -649),
    row(b"VN", Continent::As, 108, 1067),
    row(b"VU", Continent::Oc, -177, 1684),
    row(b"WF", Continent::Oc, -133, -1762),
    row(b"WS", Continent::Oc, -138, -1717),
    row(b"XK", Continent::Eu, 427, 212),
    row(b"YE", Continent::As, 128, 452),
    row(b"YT", Continent::Af, -128, 452),
    row(b"ZA", Continent::Af, -262, 280),
    row(b"ZM", Continent::Af, -154, 283),
    row(b"ZW", Continent::Af, -178, 310),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(code: &str) -> Option<CountryFacts> {
        of(Country::new(code)?)
    }

    #[test]
    fn codes_are_in_order_and_places_on_earth() {
        assert!(COUNTRIES.windows(2).all(|pair| pair[0].code < pair[1].code));
        assert_eq!(COUNTRIES.len(), 250);
        for row in COUNTRIES {
            let place = row.facts.place;
            let again = Place::new(place.latitude(), place.longitude(), PlaceOf::Country);
            assert_eq!(again, Some(place));
        }
    }

    #[test]
    fn a_few_that_everybody_knows() {
        for (code, continent, latitude, longitude) in [
            ("DE", Continent::Eu, 52.5, 13.4),
            ("US", Continent::Na, 37.4, -92.5),
            ("BR", Continent::Sa, -23.5, -46.6),
            ("EG", Continent::Af, 30.0, 31.2),
            ("TR", Continent::As, 41.0, 29.0),
            ("CY", Continent::Eu, 35.2, 33.4),
            ("AU", Continent::Oc, -33.9, 151.2),
            ("AQ", Continent::An, -77.8, 166.6),
            ("RU", Continent::Eu, 55.8, 37.6),
        ] {
            let facts = facts(code).unwrap();
            assert_eq!(facts.continent, continent, "{code}");
            let (north, east) = (facts.place.latitude(), facts.place.longitude());
            assert!((north - latitude).abs() < 0.2, "{code}: {north}");
            assert!((east - longitude).abs() < 0.2, "{code}: {east}");
        }
        for unknown in ["ZZ", "EU", "AP", "AA"] {
            assert_eq!(facts(unknown), None);
        }
    }
}
