//! Names of enumerations in files, in JSON and in the configuration.

/// Implements for an enumeration `ALL`, with every value in this order, and `name`, which returns the name of a value.
macro_rules! named {
    ($(#[$doc:meta])* $enumeration:ident { $($value:ident => $name:literal),+ $(,)? }) => {
        impl $enumeration {
            /// Every value.
            pub const ALL: [$enumeration; [$($name),+].len()] = [$($enumeration::$value),+];

            $(#[$doc])*
            pub fn name(self) -> &'static str {
                match self { $($enumeration::$value => $name),+ }
            }
        }
    };
}

pub(super) use named;
