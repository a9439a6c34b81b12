//! Which continent a country is on, for databases that know countries alone (ISO 3166-1, GeoNames).

/// Two letters for each.
const CONTINENTS: [(&str, &str); 7] = [
    (
        "AF",
        "AO BF BI BJ BW CD CF CG CI CM CV DJ DZ EG EH ER ET GA GH GM GN GQ GW KE KM LR LS LY MA MG ML MR MU MW MZ NA NE NG RE RW SC SD SH SL SN SO SS ST SZ TD TG TN TZ UG YT ZA ZM ZW",
    ),
    ("AN", "AQ BV GS HM TF"),
    (
        "AS",
        "AE AF AM AZ BD BH BN BT CC CN CX GE HK ID IL IN IO IQ IR JO JP KG KH KP KR KW KZ LA LB LK MM MN MO MV MY NP OM PH PK PS QA SA SG SY TH TJ TM TR TW UZ VN YE",
    ),
    (
        "EU",
        "AD AL AT AX BA BE BG BY CH CY CZ DE DK EE ES FI FO FR GB GG GI GR HR HU IE IM IS IT JE LI LT LU LV MC MD ME MK MT NL NO PL PT RO RS RU SE SI SJ SK SM UA VA XK",
    ),
    (
        "NA",
        "AG AI AW BB BL BM BQ BS BZ CA CR CU CW DM DO GD GL GP GT HN HT JM KN KY LC MF MQ MS MX NI PA PM PR SV SX TC TT US VC VG VI",
    ),
    (
        "OC",
        "AS AU CK FJ FM GU KI MH MP NC NF NR NU NZ PF PG PN PW SB TK TL TO TV UM VU WF WS",
    ),
    ("SA", "AR BO BR CL CO EC FK GF GY PE PY SR UY VE"),
];

/// The continent of a country, if there is such a country.
#[must_use]
pub fn continent(country: &str) -> Option<&'static str> {
    let found = CONTINENTS
        .iter()
        .find(|(_, countries)| countries.split(' ').any(|code| code == country))?;
    Some(found.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_country_is_on_one_continent() {
        let all = || {
            CONTINENTS
                .iter()
                .flat_map(|(_, countries)| countries.split(' '))
        };
        assert!(all().all(|code| code.len() == 2));
        assert_eq!(all().collect::<BTreeSet<_>>().len(), all().count());
        assert_eq!(all().count(), 250);
        assert_eq!(continent("NA"), Some("AF"), "Namibia");
        assert_eq!(continent("ZZ"), None);
    }
}
