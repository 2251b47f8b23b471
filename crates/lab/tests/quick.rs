//! Every experiment runs at its small size, so that none can rot.

#![allow(clippy::unwrap_used)]

use entresol_lab::asked::KnownMisses;
use entresol_lab::{RunOptions, experiments, report::Report};

#[test]
fn every_experiment_holds_at_its_small_size() {
    let known_misses = KnownMisses::built_in().unwrap();
    for experiment in experiments::ALL {
        let mut report = Report::new(experiment.name, true).with_known_misses(&known_misses);
        let program = env!("CARGO_BIN_EXE_lab").into();
        let options = RunOptions { quick: true, seed: 7, dir: None, out: None, program, seconds: None };
        (experiment.run)(&options, &mut report).unwrap();
        assert!(report.passed(), "{report}");
        report.check_names().unwrap();
        let json = report.to_json();
        assert_eq!(json["experiment"], experiment.name);
        assert!(!json["rows"].as_array().unwrap().is_empty());
        assert!(json["checks"].as_object().unwrap().values().all(|holds| holds == true));
        let dir = tempfile::TempDir::new().unwrap();
        let plot = dir.path().join("plot.svg");
        report.write_plot(&plot).unwrap();
        assert!(std::fs::read_to_string(plot).unwrap().contains("</svg>"));
    }
}

#[test]
fn an_unknown_experiment_is_named_with_what_there_is() {
    let error = experiments::find("nothing").unwrap_err().to_string();
    assert!(error.contains("'nothing'") && error.contains("allocation"), "{error}");
}
