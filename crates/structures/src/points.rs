//! Ordering points of this floor.

entresol_memory::order_points! {
    // The FPTree: `leaf.rs`, `key.rs`, `fptree/`.
    /// The bytes of a key are on their way to the medium before an entry refers to them.
    KEY_RECORD: Flush,
    /// The fingerprint of an entry is durable with its bit: a search looks at nothing else.
    FINGERPRINT: Step,
    /// The bit of an entry counts together with all that comes with it, never before its words.
    BIT_WITH_ITS_ENTRY: Barrier,
    /// A value changes in one store.
    REPLACED_VALUE: Store,
    /// Entries of a batch count together with what comes with them.
    BATCH_WITH_ITS_ENTRIES: Barrier,
    /// A new leaf is on its way to the medium, all of it, before the chain leads to it.
    NEW_LEAF: Flush,
    /// A new leaf leads to the leaf behind it.
    NEW_LEAF_LEADS_ON: Value,
    /// A new leaf is allocated together with the link that leads to it.
    NEW_LEAF_WITH_ITS_LINK: Barrier,
    /// The upper half of a split leaf is linked together with its end in the old leaf.
    SPLIT_IN_ONE: Barrier,
    /// Leaves that are built behind all others are on their way to the medium before the chain leads to them.
    BUILT_LEAF: Flush,
    /// Leaves that are built are allocated, with all that their entries lead to, together with the link to them.
    BUILT_LEAVES_WITH_THEIR_LINK: Barrier,
    /// Two trees exchange their leaves and sparse indexes in one.
    CONTENTS_EXCHANGED_IN_ONE: Barrier,
    /// Entries that move to a neighbour arrive together with their end in their leaf.
    MOVE_IN_ONE: Barrier,
    /// The fingerprints of entries that move are durable with their bits.
    MOVED_FINGERPRINTS: Step,
    /// A low key moves with the entries.
    LOW_KEY_MOVES: Step,
    /// A leaf is unlinked together with its freeing.
    UNLINKED_WITH_ITS_FREEING: Barrier,
    /// The entries of a leaf that is merged arrive together with its freeing.
    MERGED_WITH_ITS_FREEING: Barrier,
    /// The first leaf of a new tree is on its way to the medium.
    LEAF_OF_A_NEW_TREE: Flush,
    /// The header of a new tree is on its way to the medium.
    TREE_HEADER: Flush,
    /// A leaf of a dropped tree is freed together with its end in the chain.
    DROPPED_LEAF_WITH_ITS_LINK: Barrier,
    /// An entry of the sparse index counts when its low key is there.
    SPARSE_ENTRY_AFTER_ITS_KEY: After,
    /// A new page of the sparse index is empty on the medium before it is reachable.
    SPARSE_PAGE: Flush,
    /// An entry of the sparse index goes with its leaf.
    SPARSE_ENTRY_GOES: Step,

    // Notes of owners in headers: `note.rs`.
    /// A note is on its way to the medium.
    NOTE: FlushWord,
    /// A note is durable when the call returns: its thread may fence nothing after it.
    RETURN_AFTER_NOTE: Fence,

    // The generic tree and its node layouts: `btree/`, `node/`.
    /// A node is on its way to the medium before it is linked.
    FILLED_NODE: Step,
    /// A leaf is linked together with its end in the leaf that it was split from.
    SIBLING_WITH_ITS_SPLIT: Barrier,
    /// The parent knows of a split together with the leaves.
    PARENT_WITH_ITS_SPLIT: Barrier,
    /// The header names a new root together with the split that it is of.
    ROOT_WITH_ITS_SPLIT: Barrier,
    /// Entries of leaves that merge have moved when the right one leaves the chain.
    MERGE_IN_ONE: Barrier,
    /// The key that an erase overwrites is durable with the commit.
    ERASED_KEY: Store,
    /// Entries shift together with the insert that they make room for.
    SHIFT_WITH_ITS_INSERT: Barrier,
    /// The validity bit is cleared before the slot array changes.
    INVALID_BEFORE_IT_CHANGES: Step,
    /// Copies across the gap are on their way to the medium before they count.
    GAP_COPIES: Step,
    /// The copy of an entry in another slot is on its way to the medium before it counts.
    ENTRY_COPY: Step,
    /// Copies of entries are durable before the state of their node counts them.
    STATE_AFTER_COPIES: Fence,
    /// A word that prepares a change is on its way to the medium before the next one is stored.
    PREPARED_WORD: FlushWord,
    /// The words that prepare a change become durable one after another.
    STEP_AFTER_STEP: Fence,
    /// Keys and values that are appended to a node are on their way to the medium before they count.
    APPENDED_ENTRIES: Flush,
    /// The fingerprints of appended entries are on their way to the medium before the entries count.
    APPENDED_FINGERPRINTS: Flush,

    // Extendible hashing: `hash/`.
    /// The bit of a bucket's entry counts when its words are there.
    SLOT_AFTER_ITS_ENTRY: After,
    /// The word that says which slots of a bucket count changes with the publication.
    BUCKET_META: Store,
    /// An entry that is not at home counts when its home says where it is.
    ENTRY_AFTER_ITS_PLACE: After,
    /// A place is forgotten when its entry is gone.
    PLACE_AFTER_ITS_ENTRY: Order,
    /// A new segment is on its way to the medium before it is reachable.
    NEW_SEGMENT: Step,
    /// The old segment's depth grows together with the link to the new one: a directory would find both.
    DEPTH_WITH_THE_LINK: Barrier,
    /// Entries leave the old segment when the new one counts.
    CLEARED_AFTER_SPLIT: Order,
    /// The slots of entries that moved are on their way to the medium before the segment is whole again.
    CLEARED_SLOTS: Step,
    /// The place of an entry that is gone is on its way to the medium.
    FORGOTTEN_PLACE: FlushWord,
    /// A segment is whole again when the copies of what moved are gone.
    WHOLE_AFTER_CLEARING: Order,
    /// An open finishes the splits that a crash left.
    SPLITS_FINISHED_AT_OPEN: Step,

    // PMwCAS: `pmwcas/`.
    /// A descriptor is on its way to the medium before a word names it.
    DESCRIPTOR: Flush,
    /// A descriptor is durable before a word names it.
    WORDS_AFTER_DESCRIPTOR: Fence,
    /// A word that names a descriptor is on its way to the medium before the status is decided.
    TARGET: FlushWord,
    /// Words name the descriptor durably before its status is decided.
    STATUS_AFTER_TARGETS: Fence,
    /// A decided status is on its way to the medium before words get their values.
    STATUS: FlushWord,
    /// A decided status is durable before words get their values.
    VALUES_AFTER_STATUS: Fence,
    /// A word with its value is on its way to the medium before the descriptor is used again.
    FINISHED_WORD: FlushWord,
    /// Values are durable before the descriptor is used again.
    REUSE_AFTER_VALUES: Fence,
    /// Empty descriptors are on their way to the medium before they are reachable.
    NEW_DESCRIPTORS: Step,
    /// A dirty word is on its way to the medium before it is read as clean.
    DIRTY_WORD: FlushWord,
    /// A word is clean when its value is durable: what another thread derives from it must not outlive it.
    CLEAN_AFTER_DURABLE: Fence,
    /// An open finishes what a crash left.
    OPERATIONS_FINISHED_AT_OPEN: Step,
    /// A word that an open finishes is on its way to the medium.
    RECOVERED_WORD: FlushWord,
    /// Recovered words are durable before a descriptor is written again.
    REUSE_AFTER_RECOVERY: Fence,
    /// An entry without its forgotten word is on its way to the medium.
    FORGOTTEN_ENTRY: FlushWord,
    /// Words are forgotten durably before their memory is freed.
    FREED_AFTER_FORGOTTEN: Fence,

    // Skip lists and bucket lists: `skiplist/`.
    /// A new node is on its way to the medium before it is reachable.
    LIST_NODE: Flush,
    /// A new node is allocated together with the link to it.
    NODE_WITH_ITS_LINK: Barrier,
    /// A removed node is freed together with the link around it.
    LINK_AROUND_WITH_ITS_FREEING: Barrier,
    /// The link around a removed node changes with the publication.
    LINK_AROUND: Store,
    /// All levels of a removed node are unlinked together.
    LEVELS_TOGETHER: Barrier,
    /// An entry counts when its bucket's bound is raised.
    ENTRY_AFTER_ITS_BOUND: After,
    /// The old bucket shrinks together with the link to the new one.
    BUCKET_SPLIT_IN_ONE: Barrier,

    // Tries: `trie/`.
    /// A new node is on its way to the medium before it is reachable.
    TRIE_NODE: Flush,
    /// Nodes are allocated together with the pointer to them.
    NODES_WITH_THEIR_POINTER: Barrier,
    /// A value is there when the word says so.
    FLAG_AFTER_VALUE: After,
    /// The pointer or flag that removes changes with the publication.
    REMOVAL: Store,

    // LSM-trees: `lsm/`.
    /// The header of a new tree is on its way to the medium before it is reachable.
    LSM_HEADER: Flush,
    /// An empty log is on its way to the medium before it is reachable.
    NEW_LOG: Flush,
    /// A manifest is on its way to the medium before the header leads to it.
    NEW_MANIFEST: Flush,
    /// A record's stamp counts when its key and value are there.
    STAMP_AFTER_RECORD: After,
    /// The log is emptied when the run of its buffer counts: with it, or after it.
    LOG_EMPTIED_AFTER_ITS_RUN: After,
    /// The log of a buffer that has moved is emptied.
    LOG_EMPTIED: Step,
    /// A block of a run is on its way to the medium before a manifest has it.
    RUN_BLOCK: Flush,
    /// Merged runs are listed as obsolete together with the manifest that has them no more.
    OBSOLETE_WITH_THE_MANIFEST: Barrier,
    /// A segment is allocated together with the note that it is being built.
    SEGMENT_WITH_ITS_NOTE: Barrier,
    /// A file is durable before it is referred to.
    FILE_SYNCED: Step,
    /// A file's name is durable before it is referred to.
    NAME_SYNCED: Step,
    /// The note of a file under construction is durable before the file is made.
    NOTE_BEFORE_FILE: Step,
    /// It is durable that nothing refers to a file before it is removed.
    UNREFERRED_BEFORE_REMOVED: Step,
}
