//! Visitors and their devices. All data of a visitor is derived from its number, so that visitors take no memory.

use serde::Serialize;

use super::super::{
    json_text::{Id, Time, json_of, push, push_member},
    random::{mix, uuid_of},
};

const VISITOR_PURPOSE: u64 = 0x0076_1517;
const DAY_MS: i64 = 86_400_000;

/// The attributes of a visitor.
#[derive(Serialize)]
pub(crate) struct Attributes {
    plan: &'static str,
    country: &'static str,
    seats: u64,
    is_admin: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
}

/// A visitor. The `visitorId` is the visitor's number, so that one visitor has the id 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visitor {
    pub(crate) number: u32,
    /// Random bits, from which the data of the visitor is derived.
    bits: u64,
    pub(crate) uuid: u128,
}

impl Visitor {
    pub(crate) fn new(seed: u64, number: u32) -> Self {
        let bits = mix(seed ^ VISITOR_PURPOSE, u64::from(number));
        Self { number, bits, uuid: uuid_of(seed ^ VISITOR_PURPOSE, u64::from(number)) }
    }

    /// Returns the user id; `None` is sent as null. The id may be empty, and a few ids need escaping in a URL.
    pub(crate) fn external_user_id(&self) -> Option<String> {
        match self.bits % 100 {
            0..62 => Some(format!("user-{:06}", self.number)),
            62..64 => Some(format!("usér/日本 {:06}", self.number)),
            64..80 => Some(String::new()),
            _ => None,
        }
    }

    /// Returns the mail address; `None` if the visitor has no user id or an empty one.
    pub(crate) fn email(&self) -> Option<String> {
        self.external_user_id().filter(|id| !id.is_empty()).map(|_| format!("person{}@example.com", self.number))
    }

    /// Returns the visitor number in a generated user id or mail address: all ASCII digits of the text. `None` if they
    /// are no number of 32 bits. For any other text the number means nothing, so the caller compares the visitor's own
    /// id.
    pub(crate) fn number_in(text: &str) -> Option<u32> {
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        digits.parse().ok()
    }

    /// Appends the record members that name the visitor, each with a comma before it.
    pub(crate) fn write_identity(&self, out: &mut Vec<u8>) {
        push_member(out, "externalUserId", &self.external_user_id());
        match self.bits >> 8 & 15 {
            0 => push_member(out, "partnerAnonymousId", ""),
            1 => push_member(out, "partnerAnonymousId", &format!("anon-{}", self.bits >> 20)),
            _ => {}
        }
        push_member(out, "visitorId", &self.number);
        push_member(out, "visitorUuid", &Id(self.uuid));
    }

    /// Returns a number that selects the device of the visitor, modulo the number of devices.
    pub(crate) fn device(&self) -> usize {
        (self.bits >> 32) as usize
    }

    /// Returns the creation time of the visitor, epoch milliseconds: up to 400 days before `start_ms`.
    pub(crate) fn created_ms(&self, start_ms: i64) -> i64 {
        start_ms - ((self.bits >> 16) % 400) as i64 * DAY_MS
    }

    pub(crate) fn attributes(&self) -> Attributes {
        Attributes {
            plan: ["free", "team", "enterprise", "中小企業"][(self.bits >> 12) as usize & 3],
            country: ["DE", "US", "FR", "JP", "BR", "IN", "PL", "GB"][(self.bits >> 14) as usize & 7],
            seats: self.bits >> 24 & 0xff,
            is_admin: self.bits >> 17 & 1 == 0,
            email: self.email(),
        }
    }

    /// Appends the snapshot of the visitor at `shown_ms`, when a survey was shown. The contract misspells `attributes`,
    /// and the snapshots of every second session do so too. `added_items` is added to the number of items in the cart,
    /// so that snapshots of one session can differ. `group` is the `responseGroupUid`.
    pub(crate) fn write_snapshot(&self, out: &mut Vec<u8>, group: u128, shown_ms: i64, added_items: u32) {
        out.extend_from_slice(if group & 1 == 0 { b"{\"attributes\":" } else { b"{\"attribtues\":" });
        push(out, &self.attributes());
        out.extend_from_slice(b",\"eventProperties\":{\"cartItems\":");
        push(out, &((group >> 8 & 15) as u32 + added_items));
        out.extend_from_slice(b",\"currency\":\"EUR\"},\"events\":{\"page_view\":");
        push(out, &(self.bits >> 40 & 0x3ff));
        push_member(out, "login", &(self.bits >> 50 & 0x3f));
        push_member(out, "lastSeen", &Time::from(shown_ms));
        out.push(b'}');
        push_member(out, "externalUserId", &self.external_user_id());
        push_member(out, "responseGroupUid", &Id(group));
        let event = ["page_loaded", "checkout_completed", "report_exported"][(group >> 16) as usize % 3];
        push_member(out, "triggeringEvent", event);
        push_member(out, "visitorId", &Id(self.uuid));
        out.push(b'}');
    }
}

/// A device: the JSON text of `meta` before and after the value of `href`.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    head: String,
    tail: String,
}

impl Device {
    /// Returns all devices.
    pub(crate) fn all() -> Vec<Device> {
        const BROWSERS: [&str; 4] = ["Chrome", "Firefox", "Safari", "Edge"];
        const SYSTEMS: [&str; 4] = ["Windows", "macOS", "Linux", "iOS"];
        const LANGUAGES: [&str; 3] = ["en-US", "de-DE", "ja"];
        const SCREENS: [(i64, i64); 4] = [(1920, 1080), (1440, 900), (390, 844), (2560, 1440)];
        let mut devices = Vec::new();
        for browser in BROWSERS {
            for ((system, language), (width, height)) in SYSTEMS.iter().zip(LANGUAGES.iter().cycle()).zip(SCREENS) {
                let agent =
                    format!("Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) {browser}/126.0.0.0");
                devices.push(Device {
                    head: format!(r#"{{"browser":"{browser}","client":{{"height":{},"width":{width}}},"href":"#, height - 120),
                    tail: format!(
                        r#","language":"{language}","os":"{system}","screen":{{"height":{height},"width":{width}}},"userAgent":{}}}"#,
                        json_of(&agent)
                    ),
                });
            }
        }
        devices
    }

    /// Appends `meta`. `page` is the address of the page as a JSON string.
    pub(crate) fn write_meta(&self, out: &mut Vec<u8>, page: &str) {
        out.extend_from_slice(self.head.as_bytes());
        out.extend_from_slice(page.as_bytes());
        out.extend_from_slice(self.tail.as_bytes());
    }
}
