//! Messages of a statement that succeeded; [`crate::session::notices`] queues them.

/// Message of a statement that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Level of the message.
    pub level: NoticeLevel,
    /// Text of the message.
    pub message: String,
}

/// Level of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeLevel {
    /// Something had no effect, or another than it may seem.
    Notice,
    /// The statement asked for it: VERBOSE. No setting suppresses it.
    Info,
}

impl NoticeLevel {
    /// Name of the level, as clients show it.
    pub fn name(self) -> &'static str {
        match self {
            NoticeLevel::Notice => "NOTICE",
            NoticeLevel::Info => "INFO",
        }
    }
}
