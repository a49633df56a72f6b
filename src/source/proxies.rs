//! The proxies that environment variables name. All HTTP clients of the program and `check` decide here by which way a
//! request goes, so that both always agree.

use std::{fmt, sync::Arc};

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{ClientBuilder, Proxy, Url};

use super::{address::is_loopback, settings_error::SettingsError};
use crate::redact::ApiKey;

/// Schemes of proxy addresses.
const SCHEMES: [&str; 6] = ["http", "https", "socks5", "socks5h", "socks4", "socks4a"];

/// The proxies, and the hosts that are reached without one. Cheap to clone. The default has no proxy.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    https: Option<ProxyAddress>,
    http: Option<ProxyAddress>,
    except: Exceptions,
}

/// A usable proxy.
#[derive(Clone)]
struct ProxyAddress {
    /// The variable that names the proxy.
    variable: String,
    /// May contain a user and a password.
    url: Url,
}

impl fmt::Debug for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.shown(), self.variable)
    }
}

impl ProxyAddress {
    /// Parses the value of a variable. An address without a scheme is one of http.
    ///
    /// # Errors
    /// The value is no address of a proxy. The error names the variable and does not repeat the value.
    fn parse(text: &ApiKey) -> Result<ProxyAddress, SettingsError> {
        let unusable = |problem| SettingsError::UnusableProxy { variable: text.origin().to_owned(), problem };
        let address = text.expose();
        let parsed = match address.contains("://") {
            true => Url::parse(address),
            false => Url::parse(&format!("http://{address}")),
        };
        let url = parsed.map_err(|_| unusable("is not the address of a proxy"))?;
        if !SCHEMES.contains(&url.scheme()) {
            return Err(unusable("has a scheme that is not supported"));
        }
        // `Url` requires a host only for http and https.
        if url.host_str().unwrap_or_default().is_empty() || url.port() == Some(0) {
            return Err(unusable("names no host and port"));
        }
        if url.query().is_some() || url.fragment().is_some() || !matches!(url.path(), "" | "/") {
            return Err(unusable("has a path: a proxy has none, and a file that configures proxies cannot be read"));
        }
        Ok(ProxyAddress { variable: text.origin().to_owned(), url })
    }

    /// Returns the address without user and password.
    fn shown(&self) -> String {
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{}{port}", self.url.scheme(), self.url.host_str().unwrap_or_default())
    }
}

/// The hosts of `NO_PROXY`.
#[derive(Clone, Debug, Default)]
struct Exceptions {
    /// The value of the variable.
    text: String,
    /// Matches every address, except for those of the hosts. `None` if there are none.
    others: Option<Arc<Matcher>>,
}

impl Exceptions {
    fn new(text: String) -> Exceptions {
        // Other programs accept `*.example.com` for `.example.com`.
        let hosts: Vec<&str> = text
            .split(',')
            .map(str::trim)
            .map(|host| host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host))
            .collect();
        let others = (!text.is_empty())
            .then(|| Arc::new(Matcher::builder().all("http://proxy.invalid").no(hosts.join(",")).build()));
        Exceptions { text, others }
    }

    fn contain(&self, url: &Url) -> bool {
        let Some((others, uri)) = self.others.as_ref().zip(url.as_str().parse().ok()) else { return false };
        others.intercept(&uri).is_none()
    }
}

impl Proxies {
    /// Reads the values of the variables for https and for http addresses, and the hosts that are reached without a
    /// proxy.
    ///
    /// # Errors
    /// A variable has no usable address. Requests would otherwise go another way than the user wants.
    pub fn new(https: Option<&ApiKey>, http: Option<&ApiKey>, except: &str) -> Result<Proxies, SettingsError> {
        Ok(Proxies {
            https: https.map(ProxyAddress::parse).transpose()?,
            http: http.map(ProxyAddress::parse).transpose()?,
            except: Exceptions::new(except.to_owned()),
        })
    }

    /// Returns the proxy through which requests to this address go; `None` if they go directly. Requests to this
    /// machine always go directly.
    fn of(&self, url: &Url) -> Option<&ProxyAddress> {
        let proxy = if url.scheme() == "https" { &self.https } else { &self.http };
        let is_local = url.host_str().is_some_and(is_loopback);
        proxy.as_ref().filter(|_| !is_local && !self.except.contain(url))
    }

    /// Describes by which way requests to the address of the service go, and requests to other hosts. Returns `None`
    /// if no variable names a proxy.
    pub fn describe(&self, service: &str) -> Option<String> {
        let url = Url::parse(service).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or("the service");
        let Some(proxy) = &self.https else {
            let variable = &self.http.as_ref()?.variable;
            return Some(format!("requests to {host} go directly: {variable} is for http addresses only"));
        };
        let except = match self.except.text.as_str() {
            "" => String::new(),
            hosts => format!(", except for {hosts}"),
        };
        let through = format!("go through {} ({}){except}", proxy.shown(), proxy.variable);
        Some(match url.as_ref().is_some_and(|url| self.of(url).is_none()) {
            true => format!("requests to {host} go directly, and those to other hosts {through}"),
            false => format!("requests {through}"),
        })
    }

    /// Makes the clients of `builder` use these proxies. The library then reads no variable itself.
    pub fn apply(&self, builder: ClientBuilder) -> ClientBuilder {
        let proxies = self.clone();
        builder.proxy(Proxy::custom(move |url| proxies.of(url).map(|proxy| proxy.url.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(address: &str) -> Result<String, String> {
        let parsed = ProxyAddress::parse(&ApiKey::new(address, "HTTPS_PROXY"));
        parsed.map(|proxy| format!("{proxy:?}")).map_err(|error| error.to_string())
    }

    #[test]
    fn p11_a_usable_proxy_is_shown_without_its_password() {
        for (address, shown) in [
            ("http://proxy.example:3128", "http://proxy.example:3128"),
            ("proxy.example:3128/", "http://proxy.example:3128"),
            ("http://me:s3cr3t@proxy.example:3128", "http://proxy.example:3128"),
            ("me:s3@cr3t@proxy.example", "http://proxy.example"),
            ("https://[::1]:8443", "https://[::1]:8443"),
            ("socks5h://me:s3cr3t@10.0.0.1:1080", "socks5h://10.0.0.1:1080"),
        ] {
            assert_eq!(parse(address), Ok(format!("{shown} (HTTPS_PROXY)")));
        }
    }

    #[test]
    fn p11_an_unusable_proxy_is_refused_by_its_variable() {
        for address in [
            "ftp://s3cr3t.example",
            "http://",
            ":::",
            "://s3cr3t",
            "http:// s3cr3t",
            "http://proxy:s3cr3t",
            "http://proxy:99999",
            "http://proxy:0",
            "http://me:s3cr3t#1@proxy.example:3128",
            "http://s3cr3t.example/proxy.pac",
            "socks5://",
            "direct",
            "s3cr3t\u{fffd}://x",
        ] {
            match parse(address) {
                // A word alone is the name of a host.
                Ok(shown) => assert_eq!((address, shown.as_str()), ("direct", "http://direct (HTTPS_PROXY)")),
                Err(error) => assert!(error.contains("HTTPS_PROXY") && !error.contains("s3cr3t"), "{error}"),
            }
        }
    }

    #[test]
    fn each_address_has_its_proxy_and_its_exceptions() {
        let variable = |name: &str, host: &str| ApiKey::new(host, name);
        let (https, http) = (variable("HTTPS_PROXY", "one:1"), variable("ALL_PROXY", "socks5://two:2"));
        let except = "internal.example, *.corp.example,10.0.0.0/8,::1";
        let proxies = Proxies::new(Some(&https), Some(&http), except).unwrap();
        let of = |url: &str| proxies.of(&Url::parse(url).unwrap()).map(|proxy| proxy.shown());
        assert_eq!(of("https://api.example.com/v1/x?y").as_deref(), Some("http://one:1"));
        assert_eq!(of("http://api.example.com").as_deref(), Some("socks5://two:2"));
        assert_eq!(
            proxies.describe("https://api.example.com").unwrap(),
            format!("requests go through http://one:1 (HTTPS_PROXY), except for {except}")
        );
        assert_eq!(
            proxies.describe("http://127.0.0.1:9").unwrap(),
            format!(
                "requests to 127.0.0.1 go directly, and those to other hosts go through http://one:1 (HTTPS_PROXY), except for {except}"
            )
        );
        let only_http = Proxies::new(None, Some(&http), "").unwrap();
        let told = only_http.describe("https://x.example").unwrap();
        assert_eq!(told, "requests to x.example go directly: ALL_PROXY is for http addresses only");
        assert_eq!(of("https://localhost"), None, "this machine");
        for direct in ["https://internal.example", "http://a.corp.example:8080/x", "https://10.1.2.3", "http://[::1]/"]
        {
            assert_eq!(of(direct), None, "{direct}");
        }
        assert!(Proxies::default().of(&Url::parse("https://x").unwrap()).is_none());
        let all_direct = Proxies::new(Some(&https), None, "*").unwrap();
        assert!(all_direct.of(&Url::parse("https://x").unwrap()).is_none());
    }
}
