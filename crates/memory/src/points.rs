//! Ordering points of this floor.

crate::order_points! {
    // Publications on media where single words are all that is atomic: `domain/redo.rs`.
    /// A publication without updates orders what it flushes and writes before all that comes later.
    EMPTY_PUBLICATION_ORDERS: Fence,
    /// All that a published word makes reachable is durable before the word.
    WORD_AFTER_ITS_OBJECTS: Fence,
    /// A published word is on its way to the medium.
    PUBLISHED_WORD: FlushWord,
    /// A published word is durable before the publication returns.
    RETURN_AFTER_WORD: Fence,
    /// A lane that is whole commits its updates, so all that they make reachable is durable before it.
    LANE_AFTER_ITS_OBJECTS: Fence,
    /// A lane is on its way to the medium, all of it: its checksum tells a part from the whole.
    LANE: Flush,
    /// Updates are carried out when their lane is durable: a crash in between leaves them to the recovery.
    UPDATES_AFTER_LANE: Fence,
    /// The words of the updates are on their way to the medium.
    UPDATED_WORDS: Flush,
    /// A lane is cleared when its updates are durable.
    CLEARING_AFTER_UPDATES: Fence,
    /// A lane whose updates are durable is cleared: a recovery would carry old updates out over newer ones.
    LANE_CLEARED: Step,
    /// The cleared word of a lane is on its way to the medium.
    CLEARED_LANE: FlushWord,
    /// A publication returns when its lane is idle: a later crash would replay it over newer values.
    RETURN_AFTER_CLEARING: Fence,
    /// A recovery carries a lane out before it clears it: a crash in between finds the lane again.
    RECOVERY_CARRIES_OUT_FIRST: Order,
    /// A recovery clears the lanes that it has carried out.
    RECOVERED_LANE_CLEARED: Step,
    /// Only a whole lane is carried out: its checksum says so.
    LANE_IS_WHOLE: Check,

    // What a publication carries: `domain/mod.rs`, `publication.rs`.
    /// Ranges that a publication flushes are durable with its changes.
    PUBLICATION_FLUSHES: Step,
    /// The words that a publication writes are durable before its changes.
    PUBLICATION_WRITES: Flush,
    /// An object is allocated together with what makes it reachable: else a crash leaks it, or leaves a
    /// reference to memory that is free.
    ALLOCATED_WITH_ITS_REFERENCE: Barrier,
    /// An object is freed together with what made it reachable.
    FREED_WITH_ITS_REFERENCE: Barrier,
    /// A root is set together with the allocation of what it refers to.
    ROOT_WITH_ITS_OBJECT: Barrier,
    /// A root changes in one store: it is never missing.
    ROOT_IN_ONE_STORE: Store,
    /// A name of a root is durable before the root.
    ROOT_NAME: Flush,

    // Growth and allocation: `pool.rs`, `pool/`, `allocator/`.
    /// A file is durably as long as the pool before the pool counts the extent.
    GROWTH_SYNCED: Step,
    /// The header counts extents that are there.
    EXTENT_COUNTED_LAST: Order,
    /// The number of extents is on its way to the medium.
    EXTENT_COUNT: FlushWord,
    /// The number of extents is durable before anything in the new one.
    OBJECTS_AFTER_EXTENT_COUNT: Fence,
    /// The empty bitmap of a new slab is on its way to the medium.
    SLAB_BITMAP: Flush,
    /// A chunk becomes a slab when its bitmap is empty.
    SLAB_AFTER_BITMAP: Fence,
    /// The descriptor of a chunk is on its way to the medium.
    CHUNK_DESCRIPTOR: FlushWord,
    /// The descriptor of a chunk is durable before an object in it.
    OBJECTS_AFTER_DESCRIPTOR: Fence,
    /// Objects whose bits are set at open are not free.
    ALLOCATED_BITS_AT_OPEN: Value,
    /// The journal's name is durable before the pool says that it has one.
    JOURNAL_NAME_SYNCED: Step,
    /// Space is durably free before its blocks are released.
    FREE_BEFORE_BLOCKS_GO: Step,
    /// The checksums of pages whose blocks are released are forgotten: they will read as zeros.
    CHECKSUMS_OF_HOLES_FORGOTTEN: Step,

    /// The mark of a clean close is on its way to the medium.
    CLEAN_MARK: FlushWord,
    /// The mark of the last clean close is durably gone before the first change.
    CHANGES_AFTER_CLEAN_MARK: Fence,
    /// Flushes of a thread are durable when its sync returns.
    RETURN_AFTER_FLUSHES: Fence,

    // The journal: `domain/journal/`.
    /// A fence appends what its thread has flushed.
    FENCE_APPENDS: Step,
    /// A publication is appended behind what its thread has flushed.
    PUBLICATION_BEHIND_FLUSHES: Value,
    /// The pages of a publication are marked for the next checkpoint.
    PUBLISHED_PAGES_MARKED: Step,
    /// The pages of replayed records are marked for the next checkpoint.
    REPLAYED_PAGES_MARKED: Step,
    /// A commit returns when the journal is synced.
    JOURNAL_SYNCED: Step,
    /// A frame calls durable what a sync has made durable.
    FRAMES_SAY_WHAT_IS_DURABLE: Value,
    /// A slot is used again when no frame of it is needed.
    ONLY_FREE_SLOTS: Check,
    /// A header is written beside the one in force.
    HEADER_BESIDE_THE_OTHER: Value,
    /// Pages go to the pool file when the journal is durable up to what they contain.
    PAGES_AFTER_JOURNAL: Step,
    /// The replay position moves when the pool file is durable.
    POSITION_AFTER_PAGES: Step,
    /// The replay position moves when the checksums of the pages are durable.
    POSITION_AFTER_CHECKSUMS: Step,
    /// Checksums that are about to be overwritten are named durably before.
    TORN_CHECKSUMS_NAMED: Step,
    /// The journal is marked closed after its last checkpoint.
    CLOSED_AFTER_CHECKPOINT: Order,
    /// A recovery begins a new epoch: frames of a discarded tail never count again.
    EPOCH_ADVANCES: Value,
    /// A frame counts if it continues the stream of frames.
    FRAME_CONTINUES: Check,
    /// A slot counts if it continues the stream of frames.
    SLOT_CONTINUES: Check,
    /// A frame counts if its checksum is right.
    FRAME_IS_WHOLE: Check,
    /// A page that is released has no changes that the file lacks.
    ONLY_CLEAN_PAGES_GO: Check,
    /// No thread stores to a page between the last look at it and its eviction.
    LEAVING_PAGES_CLOSED: Step,
    /// A page whose write is not synced yet is not clean.
    CLEAN_IS_DURABLE: Check,

    // Persistent memory: `domain/dax.rs`.
    /// Flushed lines are written back.
    LINES_WRITTEN_BACK: Step,
    /// Write-backs are complete before later stores.
    WRITE_BACKS_FENCED: Step,
}
