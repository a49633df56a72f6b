//! Names of enumerations in files, in JSON and in the configuration.

/// Implements for an enumeration `ALL`, with every value in this order, `name`, which returns the name of a value, and
/// `from_name`, which returns the value with a name.
macro_rules! named {
    ($(#[$doc:meta])* $enumeration:ident { $($value:ident => $name:literal),+ $(,)? }) => {
        impl $enumeration {
            /// Every value.
            pub const ALL: [$enumeration; [$($name),+].len()] = [$($enumeration::$value),+];

            $(#[$doc])*
            pub fn name(self) -> &'static str {
                match self { $($enumeration::$value => $name),+ }
            }

            /// Returns the value with this name; `None` if there is none.
            pub fn from_name(name: &str) -> Option<$enumeration> {
                $enumeration::ALL.into_iter().find(|value| value.name() == name)
            }
        }
    };
}

pub(super) use named;
