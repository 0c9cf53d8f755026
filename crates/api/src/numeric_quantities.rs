//! Deserialization of quantities that are written as numbers (`cpu: 1`).
//!
//! The CRDs accept a quantity as a string or a number, and the API server stores it unchanged, but `k8s_openapi`'s
//! `Quantity` accepts strings only. [`NumericQuantities`] wraps any deserializer and converts numbers wherever a `Quantity`
//! is deserialized, at any depth and without an intermediate tree.

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use std::fmt;

/// A wrapper of a deserializer, visitor, seed or accessor that also wraps everything inside it.
pub(crate) struct NumericQuantities<T>(pub(crate) T);

macro_rules! forward {
    ($($method:ident($($arg:ident: $ty:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($arg: $ty,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($arg,)* NumericQuantities(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for NumericQuantities<D> {
    type Error = D::Error;

    forward! {
        deserialize_any() deserialize_bool()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64() deserialize_char() deserialize_str() deserialize_string()
        deserialize_bytes() deserialize_byte_buf() deserialize_option() deserialize_unit()
        deserialize_unit_struct(name: &'static str)
        deserialize_seq() deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_map()
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
        deserialize_identifier() deserialize_ignored_any()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        if name == "Quantity" {
            let text = self.0.deserialize_any(QuantityText)?;
            return visitor.visit_newtype_struct(de::value::StringDeserializer::new(text));
        }
        self.0.deserialize_newtype_struct(name, NumericQuantities(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Deserializes a string or a number as the text of a quantity.
struct QuantityText;

impl<'de> Visitor<'de> for QuantityText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity: a string or a number")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
    fn visit_string<E: de::Error>(self, text: String) -> Result<String, E> {
        Ok(text)
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }
    fn visit_f64<E: de::Error>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
    /// Deserializes an explicit `null` as the zero quantity, as in Go.
    fn visit_unit<E: de::Error>(self) -> Result<String, E> {
        Ok("0".to_owned())
    }
}

macro_rules! visit_plain {
    ($($method:ident: $ty:ty),*) => {$(
        fn $method<E: de::Error>(self, value: $ty) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for NumericQuantities<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    visit_plain! {
        visit_bool: bool, visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128,
        visit_u8: u8, visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128,
        visit_f32: f32, visit_f64: f64, visit_char: char, visit_str: &str, visit_borrowed_str: &'de str,
        visit_string: String, visit_bytes: &[u8], visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }
    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }
    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(NumericQuantities(inner))
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(NumericQuantities(inner))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(NumericQuantities(inner))
    }
    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(NumericQuantities(inner))
    }
    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(NumericQuantities(inner))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for NumericQuantities<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(NumericQuantities(inner))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for NumericQuantities<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(NumericQuantities(seed))
    }
    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for NumericQuantities<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(NumericQuantities(seed))
    }
    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for NumericQuantities<A> {
    type Error = A::Error;
    type Variant = NumericQuantities<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, variant) = self.0.variant_seed(seed)?;
        Ok((value, NumericQuantities(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for NumericQuantities<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(NumericQuantities(seed))
    }
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, NumericQuantities(visitor))
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, NumericQuantities(visitor))
    }
}

/// Implements `Deserialize` for a type that derives it with `#[serde(remote = "Self")]`,
/// so that every quantity inside may be a number.
macro_rules! reads_numeric_quantities {
    ($($ty:ty),*) => {$(
        impl<'de> serde::Deserialize<'de> for $ty {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <$ty>::deserialize(crate::numeric_quantities::NumericQuantities(deserializer))
            }
        }
        impl serde::Serialize for $ty {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$ty>::serialize(self, serializer)
            }
        }
    )*};
}
pub(crate) use reads_numeric_quantities;

#[cfg(test)]
mod tests {
    use crate::RayClusterSpec;
    use serde_json::json;

    #[test]
    fn numbers_are_quantities_at_any_depth() {
        let spec: RayClusterSpec = serde_json::from_value(json!({
            "headGroupSpec": {"template": {"spec": {
                "containers": [{"name": "ray", "resources": {"limits": {"cpu": 1, "memory": 2.5}},
                    "env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": 1}}}]}],
                "volumes": [{"name": "shm", "emptyDir": {"sizeLimit": 1024}}],
                "overhead": {"cpu": "250m"}}}},
            "gcsFaultToleranceOptions": {"storage": {"size": 7}}
        }))
        .unwrap();
        let pod = spec.head_group_spec.template.spec.unwrap();
        let limits = pod.containers[0].resources.as_ref().unwrap().limits.clone().unwrap();
        assert_eq!(limits["cpu"].0, "1");
        assert_eq!(limits["memory"].0, "2.5");
        assert_eq!(pod.volumes.unwrap()[0].empty_dir.as_ref().unwrap().size_limit.as_ref().unwrap().0, "1024");
        assert_eq!(pod.overhead.unwrap()["cpu"].0, "250m");
        let storage = spec.gcs_fault_tolerance_options.unwrap().storage.unwrap();
        assert_eq!(storage.size.unwrap().0, "7");
    }
}
