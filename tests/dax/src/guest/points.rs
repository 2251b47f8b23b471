//! Ordering points of the guest's own histories.

entresol_memory::order_points! {
    /// A line is on its way to the medium before the next one is stored.
    LINE: FlushWord,
    /// Lines become durable in their order.
    LINE_AFTER_LINE: Fence,
}
