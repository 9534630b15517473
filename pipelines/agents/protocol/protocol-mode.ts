/**
 * The stream mode of runs that were started through the event-stream protocol, and of their events without an
 * equivalent in the older stream modes, whose readers skip them. Clients cannot request this mode by name.
 */
export const protocolMode = 'v2';

/** Method of the event for an interrupt, under {@link protocolMode}. */
export const questionEvent = 'input.requested';
