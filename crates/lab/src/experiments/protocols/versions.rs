//! `mvcc-versions` (figure 5.10): throughput over the version slots of an object.

use super::bench::{Bench, Load, Medium, Rates};
use super::skew::Skew;
use super::{MEDIUM, Sizes};
use crate::asked::AskedFigure;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::Durability;
use entresol_transactions::{ContextOptions, Protocol};
use serde_json::json;

const SLOTS: [usize; 5] = [2, 4, 8, 16, 32];
const THETAS: [f64; 4] = [0.0, 1.0, 2.0, 2.9];
const READERS: usize = 4;
/// Share of the throughput with the fewest slots that the most slots must reach.
const HARDLY_ANY_INFLUENCE: f64 = 0.9;

pub(crate) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    report.note(
        "Out of place, figure 5.10 finds fewer slots better, since an object is written anew with all of them. Our versions \
         out of place are chains without slots, so that there is nothing to vary.",
    );
    let sizes = Sizes::of(options);
    // Thirty-two slots of a million tuples would be gigabytes.
    let tuples = sizes.tuples / 4;
    let skews: Vec<Skew> = THETAS.iter().map(|&theta| Skew::new(tuples, theta)).collect();
    let (mut series, mut wrong, mut fewest) = (Vec::new(), 0, vec![0.0; THETAS.len()]);
    for medium in Medium::ALL {
        for slots in SLOTS {
            let (pool, dir) = medium.pool(options)?;
            let context = ContextOptions {
                protocol: Protocol::MvccInPlace,
                version_slots: slots,
                version_slots_max: slots,
                ..ContextOptions::default()
            };
            let bench = Bench::new(pool, dir, context, tuples)?;
            let mut points = Vec::new();
            for (place, (theta, skew)) in THETAS.iter().zip(&skews).enumerate() {
                let load = Load {
                    readers: READERS,
                    writers: 1,
                    operations: MEDIUM,
                    durability: Durability::None,
                    phase: sizes.phase,
                    seed: options.seed,
                };
                let rounds =
                    (0..sizes.rounds).map(|_| bench.run(skew, &load)).collect::<Result<Vec<_>, _>>()?;
                let rates = Rates::middle(&rounds);
                wrong += rates.wrong;
                report.row(json!({
                    "figure": "throughput",
                    "medium": medium.name(),
                    "version_slots": slots,
                    "theta": theta,
                    "read_transactions_per_s": rates.reads_per_s,
                    "write_transactions_per_s": rates.writes_per_s,
                    "old_versions_in_dram": bench.context.stats().old_versions,
                }));
                points.push((theta.to_string(), rates.total_per_s() / 1e3));
                if slots == SLOTS[0] {
                    fewest[place] = rates.total_per_s();
                } else if slots == SLOTS[SLOTS.len() - 1] {
                    let name = format!("{slots} slots beside {}, theta {theta}, {}", SLOTS[0], medium.name());
                    let ratio = rates.total_per_s() / fewest[place].max(1.0);
                    report.paper("dissertation, figure 5.10", &name, "hardly below 1", Some(ratio));
                    report.asked(AskedFigure::at_least(name, ratio, HARDLY_ANY_INFLUENCE));
                }
            }
            series.push(Series { name: format!("{slots} slots"), points });
        }
        report.figure(Figure {
            title: format!("Version slots, {}, {READERS} readers", medium.name()),
            x_label: "theta".to_string(),
            y_label: "thousand transactions/s".to_string(),
            series: std::mem::take(&mut series),
        });
    }
    report.check("every committed transaction saw one snapshot of both states", wrong == 0);
    Ok(())
}
