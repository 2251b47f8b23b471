//! `entresol role …`: roles that may connect to a served database, and their privileges.

use crate::arguments::{GrantArguments, PasswordSource, RoleCommand};
use crate::error::{Error, Result};
use crate::shell::output;
use entresol::{Database, Options};
use entresol_server::roles::{self, ALL_TABLES, Privileges, Role};
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::Path;

/// Runs `entresol role`.
pub fn run(command: &RoleCommand) -> Result<()> {
    match command {
        RoleCommand::Add(add) => {
            let role = Role {
                name: add.name.clone(),
                administrator: add.administrator,
                grants: granted(&add.granted).collect(),
            };
            let password = password(&add.password)?;
            change(&add.dir, true, |db| {
                tables_exist(db, role.grants.keys())?;
                Ok(roles::create(db, &role, &password)?)
            })
        }
        RoleCommand::Password(of) => {
            let password = password(&of.password)?;
            change(&of.dir, false, |db| Ok(roles::set_password(db, &of.name, &password)?))
        }
        RoleCommand::Grant(grant) => change(&grant.dir, false, |db| {
            tables_exist(db, grant.granted.read.iter().chain(&grant.granted.write))?;
            for (table, access) in granted(&grant.granted) {
                roles::grant(db, &grant.name, access, &[table])?;
            }
            Ok(())
        }),
        RoleCommand::Revoke(revoke) => {
            change(&revoke.dir, false, |db| Ok(roles::revoke(db, &revoke.name, &revoke.tables)?))
        }
        RoleCommand::Drop(of) => change(&of.dir, false, |db| Ok(roles::drop_role(db, &of.name)?)),
        RoleCommand::List(of) => change(&of.dir, false, list),
    }
}

fn change(dir: &Path, create: bool, work: impl FnOnce(&Database) -> Result<()>) -> Result<()> {
    let database = Database::open(dir, Options::default().create_if_missing(create).start_topologies(false))?;
    let done = work(&database);
    let closed = database.close();
    done?;
    Ok(closed?)
}

fn list(db: &Database) -> Result<()> {
    let mut out = output::stdout();
    for role in roles::list(db)? {
        let grants = role.grants.iter().map(|(table, privileges)| match *privileges {
            Privileges::SELECT => format!("read {table}"),
            Privileges::ALL => format!("write {table}"),
            some => format!("{} {table}", words(some)),
        });
        let all = role.administrator.then(|| "administrator".to_owned()).into_iter().chain(grants);
        writeln!(out, "{}: {}", role.name, all.collect::<Vec<_>>().join(", "))?;
    }
    Ok(out.flush()?)
}

fn granted(granted: &GrantArguments) -> impl Iterator<Item = (String, Privileges)> + '_ {
    let read = granted.read.iter().map(|table| (table.clone(), Privileges::SELECT));
    read.chain(granted.write.iter().map(|table| (table.clone(), Privileges::ALL)))
}

/// Privileges as GRANT names them, in lower case.
fn words(privileges: Privileges) -> String {
    let of_schema = (Privileges::CREATE, "CREATE", 'C');
    let all = Privileges::NAMES.into_iter().chain([of_schema]);
    let held = all.filter(|(privilege, ..)| privileges.contains(*privilege));
    held.map(|(_, name, _)| name.to_lowercase()).collect::<Vec<_>>().join("+")
}

/// Checks that tables exist: a misspelt name would grant nothing, silently.
fn tables_exist<'n>(db: &Database, names: impl Iterator<Item = &'n String>) -> Result<()> {
    for name in names.filter(|name| *name != ALL_TABLES) {
        db.catalog().table(name)?;
    }
    Ok(())
}

/// The first line of the file or of standard input; a terminal does not show it.
fn password(source: &PasswordSource) -> Result<String> {
    let mut line = String::new();
    match &source.password_file {
        Some(path) => {
            let file = File::open(path).map_err(|error| Error::file("read", path, error))?;
            BufReader::new(file).read_line(&mut line).map_err(|error| Error::file("read", path, error))?;
        }
        None => {
            let input = io::stdin();
            let before = if input.is_terminal() { Some(hide(&input)?) } else { None };
            let read = input.lock().read_line(&mut line);
            if let Some(before) = before {
                let shown = tcsetattr(&input, SetArg::TCSANOW, &before);
                eprintln!();
                shown.map_err(io::Error::from)?;
            }
            read?;
        }
    }
    let password = line.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        Err(Error::Invalid("the password is empty".to_owned()))
    } else {
        Ok(password.to_owned())
    }
}

/// Prompts, and stops the terminal from echoing.
fn hide(input: &io::Stdin) -> Result<nix::sys::termios::Termios> {
    eprint!("Password: ");
    let before = tcgetattr(input).map_err(io::Error::from)?;
    let mut silent = before.clone();
    silent.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(input, SetArg::TCSANOW, &silent).map_err(io::Error::from)?;
    Ok(before)
}
