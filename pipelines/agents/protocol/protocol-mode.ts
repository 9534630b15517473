/**
 * The stream mode of runs that were started through the event-stream protocol, and of those of their events that have no place in
 * the older way of streaming, whose readers leave them out. No client can ask for it by name.
 */
export const protocolMode = 'v2';

/** Method of the event that asks a question, under {@link protocolMode}. */
export const questionEvent = 'input.requested';
