//! Ordering points of this floor.

entresol_memory::order_points! {
    // A commit: `commit.rs`, `commit/`.
    /// A commit announces its timestamp before it writes: what an unfinished one left is told by it.
    COMMIT_ANNOUNCED: Step,
    /// An announcement is on its way to the medium.
    ANNOUNCEMENT: FlushWord,
    /// An announcement is durable before the first version with its timestamp.
    VERSIONS_AFTER_ANNOUNCEMENT: Fence,
    /// Versions are durable before their bits.
    BITS_AFTER_VERSIONS: Fence,
    /// Bits are durable before the `LastCTS` that makes them count.
    LAST_CTS_AFTER_BITS: Fence,
    /// `LastCTS` moves when versions and bits are there.
    LAST_CTS_AFTER_VERSIONS: Later,
    /// `LastCTS` moves when the histories have what the commit has ended.
    LAST_CTS_AFTER_HISTORIES: Later,
    /// A commit counts when its versions on disk are durable.
    LAST_CTS_AFTER_DISK: Step,
    /// The states of a load get their contents together.
    LOADED_STATES_TOGETHER: Barrier,
    /// The index of a load is that of a dropped state, until its content is exchanged.
    LOAD_IS_DROPPED: Value,
    /// An object is allocated together with the key that leads to it.
    OBJECT_WITH_ITS_KEY: Barrier,
    /// An object is freed together with the change of the key that led to it.
    REPLACED_OBJECT_WITH_ITS_KEY: Barrier,
    /// A large commit is declared before it writes: small ones raise `LastCTS` above it meanwhile.
    LARGE_COMMIT_DECLARED: Step,
    /// A large commit that completes raises `LastCTS`: else commits in flight at a crash would take it along.
    LARGE_COMMIT_RAISES_LAST_CTS: Step,
    /// A commit that fails leaves out the declared ones below it.
    FAILURE_SPARES_DECLARED: Value,

    // Objects with version slots: `object.rs`, `plan.rs`.
    /// A slot that is used again does not count on the medium.
    SLOT_CLEARED: FlushWord,
    /// The bit of a version counts when its words are there.
    BIT_AFTER_ITS_VERSION: After,
    /// The timestamps of a version, and the end of the one before it beside them, are on their way to the
    /// medium.
    VERSION_TIMES: Flush,
    /// The value of a version is on its way to the medium.
    VERSION_VALUE: Flush,
    /// The end of a version is on its way to the medium.
    VERSION_END: FlushWord,
    /// The bit of a version is on its way to the medium.
    VERSION_BIT: FlushWord,
    /// The header and first value of a new object are on their way to the medium.
    NEW_OBJECT: Flush,
    /// The further values of a new object are on their way to the medium.
    NEW_OBJECT_VALUES: Flush,
    /// A version is written into a free slot.
    VERSION_IN_A_FREE_SLOT: Value,

    // Chains of versions: `chain.rs`.
    /// A version of a chain is on its way to the medium before the index leads to it.
    CHAINED_VERSION: Flush,
    /// A version that an unfinished commit left is void on the medium before its range goes.
    VOIDED_VERSION: FlushWord,
    /// A chain ends before the versions that are freed.
    CHAIN_TRUNCATED: Step,

    // What commits have ended: `history/`.
    /// A record of the history has the end of its version.
    RECORD_HAS_ITS_END: Value,
    /// A commit that ends a version again corrects the record that an unfinished one left.
    RECORDED_END_CORRECTED: Step,
    /// The corrected end is on its way to the medium.
    CORRECTED_END: FlushWord,
    /// The horizon moves before records are erased: what is behind it is not answered.
    HORIZON_MOVED: Step,
    /// The horizon of a history is on its way to the medium.
    HORIZON: FlushWord,
    /// Records are erased when the horizon is durable.
    ERASED_AFTER_HORIZON: Fence,
    /// A record is freed together with its key.
    RECORD_WITH_ITS_KEY: Barrier,

    // Change logs: `changes/`.
    /// Changes count with their commit.
    CHANGES_OF_THEIR_COMMIT: Value,
    /// `LastCTS` moves when the change logs have what the commit has changed.
    LAST_CTS_AFTER_CHANGES: Later,

    // The directory: `directory.rs`, `directory/`.
    /// The `LastCTS` of a group is on its way to the medium.
    LAST_CTS: FlushWord,
    /// `LastCTS` is durable before the commits that it completes return.
    RETURN_AFTER_LAST_CTS: Fence,
    /// The `LastCTS` of all groups of a commit change together.
    LAST_CTS_OF_ALL_GROUPS: Barrier,
    /// The list of a commit over many groups is on its way to the medium.
    LAST_CTS_LIST: Flush,
    /// The words of a list change when the list is durable.
    LAST_CTS_AFTER_LIST: Order,
    /// A list goes when its words are durable.
    LIST_GOES_AFTER_LAST_CTS: Fence,
    /// An open carries out the list that a crash left.
    LIST_CARRIED_OUT: Step,
    /// A segment is allocated together with the word that leads to it.
    SEGMENT_WITH_ITS_PLACE: Barrier,
    /// A new segment is empty.
    SEGMENT_CLEARED: Step,
    /// A new segment is on its way to the medium.
    NEW_SEGMENT: Flush,
    /// The index of a dropped state is freed together with its entry.
    DROPPED_INDEX_WITH_ITS_ENTRY: Barrier,
    /// The directory names a state on disk that the disk durably has.
    DISK_STATE_BEFORE_ITS_NAME: Step,
    /// Timestamps of groups with durable states are durable.
    DURABLE_GROUPS: Value,

    // Recovery: `recovery.rs`.
    /// Announced timestamps above `LastCTS` never count.
    ANNOUNCED_AT_OPEN: Value,
    /// Announced timestamps are not given out again.
    ANNOUNCED_NOT_REUSED: Step,
    /// The range of an unfinished commit is durable: the next open does not find its announcement.
    INVALID_RANGE_NOTED: Step,
    /// A range goes when everything that it hides is durably gone.
    RANGES_GO_AFTER_TRACES: Fence,
    /// The entry of a range that goes is on its way to the medium.
    RANGE_TAKEN_OUT: FlushWord,
    /// A group with durable states is recovered, volatile ones beside them or not.
    DURABLE_GROUPS_RECOVERED: Value,

    // Reclaiming: `reclaim.rs`.
    /// A dead object is freed together with its key.
    DEAD_OBJECT_WITH_ITS_KEY: Barrier,

    // Protocols: `locks.rs`, `validation_sets.rs`, `plan.rs`.
    /// Readers and writers have a lock.
    LOCK_IS_HELD: Check,
    /// Reads of a transaction are validated.
    READS_VALIDATED: Step,
    /// Versions that leave their object while they are read are kept beside it.
    OLD_VERSIONS_KEPT: Value,
}
