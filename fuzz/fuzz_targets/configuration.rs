//! Any configuration file becomes settings within their limits, or an error with a text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use studysync::config::fuzzing::resolve_text;

fuzz_target!(|text: &str| match resolve_text(text) {
    Ok(settings) => {
        assert!((1..=64).contains(&settings.throttle.in_flight_max));
        assert!(settings.throttle.requests_per_sec_max.is_none_or(|rate| rate.is_finite() && rate > 0.0));
        for stream in &settings.streams {
            assert!((1..=1000).contains(&stream.page_rows));
            // The printed form can be parsed again.
            let shown = stream.rescan.to_string();
            assert!(!shown.contains('-'), "an age of less than nothing: {shown}");
        }
    }
    Err(error) => assert!(!error.to_string().is_empty()),
});
