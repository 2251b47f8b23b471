//! The PostgreSQL wire: any client, driver or tool of PostgreSQL's talks to a database.
#![forbid(unsafe_code)]
