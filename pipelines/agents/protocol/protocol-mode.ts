/**
 * The stream mode of runs that were started through the event-stream protocol, and of those of their events that have
 * no equivalent in the older stream modes. Readers of the older modes skip these events. Clients cannot request this
 * mode by name.
 */
export const protocolMode = 'v2';

/** Method of the event for an interrupt, under {@link protocolMode}. */
export const questionEvent = 'input.requested';
