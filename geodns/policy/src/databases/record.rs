//! One record of a database, whatever its vendor: read leniently, field by field.
//!
//! ```text
//! fact        nested (GeoIP2, GeoLite2, DB-IP)        flat (ip-location-db, IPinfo)
//! continent   continent.code                          continent_code, continent
//! country     country.iso_code                        country_code, country
//! location    location.latitude, location.longitude   latitude, longitude; lat, lng
//! asn         autonomous_system_number                autonomous_system_number, asn ("AS64500" too)
//! ```
//!
//! Numbers may be `f32`, `f64`, integers or text. A field of another shape is a fact that is not known; what cannot be decoded at
//! all is an error. Names of places are skipped, not decoded.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use topology::Continent;

use crate::databases::countries;
use crate::facts::{Country, Facts, Place, PlaceOf};

/// The facts of a record.
pub(crate) struct Record(pub(crate) Facts);

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::deserialize(deserializer)?;
        Ok(Self(fields.facts()))
    }
}

/// What was found under the keys that mean something.
#[derive(Default)]
struct Fields {
    continent: Option<Continent>,
    country: Option<Country>,
    latitude: Option<f64>,
    longitude: Option<f64>,
    asn: Option<u32>,
}

impl Fields {
    fn facts(&self) -> Facts {
        // Written where the country is not known: Europe, and Asia or the Pacific.
        let region = match self.country.as_ref().map(Country::code) {
            Some("EU") => Some(Continent::Eu),
            Some("AP") => Some(Continent::As),
            _ => None,
        };
        let of_country = || Some(countries::of(self.country?)?.continent);
        let location = self.latitude.zip(self.longitude);
        Facts {
            country: self.country.filter(|_| region.is_none()),
            continent: self.continent.or(region).or_else(of_country),
            location: location.and_then(|(north, east)| Place::new(north, east, PlaceOf::City)),
            asn: self.asn,
        }
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::Continent => {
                    let code = map.next_value::<Value>()?.code;
                    fields.continent = fields.continent.or_else(|| continent(code?));
                }
                Key::Country => {
                    let code = map.next_value::<Value>()?.code;
                    fields.country = fields.country.or_else(|| Country::new(as_text(&code?)));
                }
                Key::Location => {
                    let value = map.next_value::<Value>()?;
                    fields.latitude = fields.latitude.or(value.latitude);
                    fields.longitude = fields.longitude.or(value.longitude);
                }
                Key::Latitude => fields.latitude = map.next_value::<Value>()?.number,
                Key::Longitude => fields.longitude = map.next_value::<Value>()?.number,
                Key::Asn => fields.asn = map.next_value::<Value>()?.asn(),
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(fields)
    }
}

/// The keys of a record that mean something.
enum Key {
    Continent,
    Country,
    Location,
    Latitude,
    Longitude,
    Asn,
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E: Error>(self, key: &str) -> Result<Key, E> {
                self.visit_bytes(key.as_bytes())
            }

            fn visit_bytes<E>(self, key: &[u8]) -> Result<Key, E> {
                Ok(match key {
                    b"continent" | b"continent_code" => Key::Continent,
                    b"country" | b"country_code" => Key::Country,
                    b"location" => Key::Location,
                    b"latitude" | b"lat" => Key::Latitude,
                    b"longitude" | b"lng" | b"lon" => Key::Longitude,
                    b"autonomous_system_number" | b"asn" => Key::Asn,
                    _ => Key::Other,
                })
            }
        }
        deserializer.deserialize_identifier(KeyVisitor)
    }
}

/// Room for `AS4294967295` and for a code; longer text means nothing here.
type Text = [u8; 16];

/// A value of any shape, and what may be meant by it.
#[derive(Default)]
struct Value {
    /// Text, or the `code` or `iso_code` of a map. Filled up with zeros.
    code: Option<Text>,
    /// A number, or text that is one.
    number: Option<f64>,
    latitude: Option<f64>,
    longitude: Option<f64>,
}

impl Value {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number between 0 and the largest that fits"
    )]
    fn asn(&self) -> Option<u32> {
        if let Some(text) = &self.code {
            let text = as_text(text);
            let digits = text.strip_prefix("AS").unwrap_or(text);
            return digits.parse().ok().filter(|asn| *asn != 0);
        }
        let number = self.number?;
        let whole = number.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&number);
        whole.then_some(number as u32)
    }

    fn of_number(number: f64) -> Self {
        Self {
            number: Some(number),
            ..Self::default()
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        let mut code = Text::default();
        let Some(place) = code.get_mut(..text.len()) else {
            return Ok(Value::default());
        };
        place.copy_from_slice(text.as_bytes());
        Ok(Value {
            code: Some(code),
            number: text.parse().ok(),
            ..Value::default()
        })
    }

    fn visit_f32<E>(self, number: f32) -> Result<Value, E> {
        Ok(Value::of_number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::of_number(number))
    }

    #[expect(clippy::cast_precision_loss, reason = "what matters is below 2^53")]
    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::of_number(number as f64))
    }

    #[expect(clippy::cast_precision_loss, reason = "what matters is below 2^53")]
    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::of_number(number as f64))
    }

    fn visit_u128<E>(self, _: u128) -> Result<Value, E> {
        Ok(Value::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::default())
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Value, E> {
        Ok(Value::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut value = Value::default();
        while let Some(key) = map.next_key::<Inner>()? {
            match key {
                Inner::Code => value.code = map.next_value::<Self::Value>()?.code,
                Inner::Latitude => value.latitude = map.next_value::<Self::Value>()?.number,
                Inner::Longitude => value.longitude = map.next_value::<Self::Value>()?.number,
                Inner::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(value)
    }
}

/// The keys of a map inside a record that mean something.
enum Inner {
    Code,
    Latitude,
    Longitude,
    Other,
}

impl<'de> Deserialize<'de> for Inner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InnerVisitor;
        impl Visitor<'_> for InnerVisitor {
            type Value = Inner;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E: Error>(self, key: &str) -> Result<Inner, E> {
                self.visit_bytes(key.as_bytes())
            }

            fn visit_bytes<E>(self, key: &[u8]) -> Result<Inner, E> {
                Ok(match key {
                    b"code" | b"iso_code" => Inner::Code,
                    b"latitude" => Inner::Latitude,
                    b"longitude" => Inner::Longitude,
                    _ => Inner::Other,
                })
            }
        }
        deserializer.deserialize_identifier(InnerVisitor)
    }
}

fn as_text(text: &Text) -> &str {
    let end = text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(text.len());
    let text = text.get(..end).unwrap_or_default();
    std::str::from_utf8(text).unwrap_or_default()
}

fn continent(code: Text) -> Option<Continent> {
    match as_text(&code) {
        "AF" => Some(Continent::Af),
        "AN" => Some(Continent::An),
        "AS" => Some(Continent::As),
        "EU" => Some(Continent::Eu),
        "NA" => Some(Continent::Na),
        "OC" => Some(Continent::Oc),
        "SA" => Some(Continent::Sa),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same visitor over JSON: shapes without bytes of a database.
    fn facts(json: &str) -> Facts {
        serde_json::from_str::<Record>(json).unwrap().0
    }

    fn germany() -> Facts {
        Facts {
            country: Country::new("DE"),
            continent: Some(Continent::Eu),
            ..Facts::default()
        }
    }

    #[test]
    fn nested_and_flat_records_say_the_same() {
        for json in [
            r#"{"country":{"iso_code":"DE","names":{"en":"Germany"}},"continent":{"code":"EU","geoname_id":1}}"#,
            r#"{"country_code":"DE"}"#,
            r#"{"country":"DE","country_name":"Germany"}"#,
            r#"{"country_code":"de","continent_code":"EU"}"#,
        ] {
            assert_eq!(facts(json), germany(), "{json}");
        }
        let city = Facts {
            location: Place::new(50.1, 8.7, PlaceOf::City),
            ..germany()
        };
        for json in [
            r#"{"country":{"iso_code":"DE"},"location":{"latitude":50.11,"longitude":8.68,"time_zone":"Europe/Berlin"}}"#,
            r#"{"country_code":"DE","latitude":50.11,"longitude":8.68,"city":"Frankfurt"}"#,
            r#"{"country":"DE","lat":"50.11","lng":"8.68"}"#,
        ] {
            assert_eq!(facts(json), city, "{json}");
        }
    }

    #[test]
    fn a_continent_may_stand_alone() {
        let wanted = Facts {
            continent: Some(Continent::As),
            ..Facts::default()
        };
        assert_eq!(facts(r#"{"continent":{"code":"AS"}}"#), wanted);
        assert_eq!(
            facts(r#"{"continent_code":"AS","country_code":""}"#),
            wanted
        );
        assert_eq!(facts(r#"{"country_code":"AP"}"#), wanted);
    }

    #[test]
    fn numbers_of_networks_come_in_three_shapes() {
        for json in [
            r#"{"autonomous_system_number":64500,"autonomous_system_organization":"x"}"#,
            r#"{"asn":"AS64500"}"#,
            r#"{"asn":"64500"}"#,
        ] {
            assert_eq!(facts(json).asn, Some(64_500), "{json}");
        }
        for json in [
            r#"{"asn":0}"#,
            r#"{"asn":-1}"#,
            r#"{"asn":1.5}"#,
            r#"{"asn":4294967296}"#,
            r#"{"asn":"x"}"#,
        ] {
            assert_eq!(facts(json).asn, None, "{json}");
        }
    }

    #[test]
    fn what_has_another_shape_is_not_known() {
        for json in [
            "{}",
            r#"{"country":["DE"],"location":"here","continent":true,"asn":{}}"#,
            r#"{"country_code":"Germany, a country with a long name","latitude":91.0,"longitude":0.0}"#,
            r#"{"country_code":"D","continent":{"code":"XX"},"latitude":1.0}"#,
        ] {
            assert!(facts(json).is_unknown(), "{json}");
        }
        assert!(serde_json::from_str::<Record>("7").is_err());
    }
}
