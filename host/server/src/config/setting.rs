//! How one setting is read from text or TOML.
//!
//! Knows no setting by name. Each error says what was expected, in words that end a sentence which
//! begins with the key.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::Secret;

/// A value as it stands in one of the sources.
#[derive(Clone, Debug)]
pub(super) enum Raw {
    /// From the environment or a flag.
    Text(String),
    /// From the file.
    Toml(toml::Value),
}

impl Raw {
    /// The value as text, where it is one.
    fn text(&self) -> Result<&str, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Toml(toml::Value::String(text)) => Ok(text),
            Self::Toml(other) => Err(format!("must be text, not {}", other.type_str())),
        }
    }

    /// The elements of a list: a TOML array, or text split at commas.
    fn list(&self) -> Result<Vec<String>, String> {
        match self {
            Self::Toml(toml::Value::Array(items)) => items
                .iter()
                .map(|item| {
                    item.as_str()
                        .map(str::to_owned)
                        .ok_or_else(|| "must be a list of texts".to_owned())
                })
                .collect(),
            _ => Ok(self
                .text()?
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(str::to_owned)
                .collect()),
        }
    }
}

/// Something that a setting can hold.
pub(super) trait Setting: Sized {
    /// Reads it, or says what was expected.
    fn read(raw: &Raw) -> Result<Self, String>;
    /// How the reference shows a default.
    fn show(&self) -> String;
}

macro_rules! integers {
    ($($kind:ty),*) => {$(
        impl Setting for $kind {
            fn read(raw: &Raw) -> Result<Self, String> {
                let expected = || format!("must be a whole number from 0 to {}", <$kind>::MAX);
                match raw {
                    Raw::Toml(toml::Value::Integer(number)) => <$kind>::try_from(*number).map_err(|_| expected()),
                    Raw::Text(text) => text.trim().replace('_', "").parse().map_err(|_| expected()),
                    Raw::Toml(_) => Err(expected()),
                }
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
integers!(u16, u32, u64, usize);

impl Setting for bool {
    fn read(raw: &Raw) -> Result<Self, String> {
        match raw {
            Raw::Toml(toml::Value::Boolean(yes)) => Ok(*yes),
            Raw::Text(text) if ["true", "1", "yes", "on"].contains(&text.trim()) => Ok(true),
            Raw::Text(text) if ["false", "0", "no", "off"].contains(&text.trim()) => Ok(false),
            _ => Err("must be true or false".into()),
        }
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for f64 {
    fn read(raw: &Raw) -> Result<Self, String> {
        let number = match raw {
            Raw::Toml(toml::Value::Float(number)) => Some(*number),
            Raw::Toml(toml::Value::Integer(number)) => u32::try_from(*number).ok().map(f64::from),
            Raw::Text(text) => text.trim().parse().ok(),
            Raw::Toml(_) => None,
        };
        number
            .filter(|number: &f64| number.is_finite() && *number >= 0.0)
            .ok_or_else(|| "must be a number, 0 or more".into())
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Setting for String {
    fn read(raw: &Raw) -> Result<Self, String> {
        raw.text().map(str::to_owned)
    }
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl Setting for Secret {
    fn read(raw: &Raw) -> Result<Self, String> {
        raw.text().map(|text| Self::new(text.to_owned()))
    }
    fn show(&self) -> String {
        "…".into()
    }
}

impl Setting for PathBuf {
    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text()?;
        if text.is_empty() { Err("must be a path".into()) } else { Ok(text.into()) }
    }
    fn show(&self) -> String {
        format!("{:?}", self.display().to_string())
    }
}

impl Setting for SocketAddr {
    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text()?;
        // A bare port is what most people try first; it means this machine only.
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Self::from(([127, 0, 0, 1], port)));
        }
        let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let named = named.or_else(|| text.strip_prefix(':').map(|port| format!("0.0.0.0:{port}")));
        named
            .as_deref()
            .unwrap_or(text)
            .parse()
            .map_err(|_| "must be an address and a port, such as 127.0.0.1:8080".into())
    }
    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

impl Setting for Vec<String> {
    fn read(raw: &Raw) -> Result<Self, String> {
        raw.list()
    }
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl Setting for Vec<IpNet> {
    fn read(raw: &Raw) -> Result<Self, String> {
        raw.list()?
            .iter()
            .map(|text| {
                let net = text
                    .parse::<IpNet>()
                    .or_else(|_| text.parse::<std::net::IpAddr>().map(IpNet::from));
                net.map_err(|_| format!("holds {text:?}, which is no range such as 10.0.0.0/8"))
            })
            .collect()
    }
    fn show(&self) -> String {
        format!("{:?}", self.iter().map(ToString::to_string).collect::<Vec<_>>())
    }
}

impl Setting for toml::Value {
    fn read(raw: &Raw) -> Result<Self, String> {
        match raw {
            Raw::Toml(value) => Ok(value.clone()),
            Raw::Text(text) => serde_json::from_str(text).map_err(|_| "must be JSON".to_owned()),
        }
    }
    fn show(&self) -> String {
        self.to_string()
    }
}
