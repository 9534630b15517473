import type { ErrorCode } from '../errors/catalogue.ts';
import { type RunlakeError, runlakeError } from '../errors/runlake-error.ts';

/** The operation of an object store that failed; the checks of a destination have the same names. */
export type ObjectStep = 'reach' | 'write' | 'read' | 'delete' | 'upload';

export interface ObjectCall {
  readonly step: ObjectStep;
  /** The object or location, in a form that the owner of the destination recognises. */
  readonly where: string;
}

type DestinationCode = Extract<ErrorCode, `DESTINATION_${string}`>;

/** Creates a catalogue error for one call of a store, with a reason for the owner of the destination. */
export function destinationError(
  code: DestinationCode,
  { step, where }: ObjectCall,
  reason: string,
  cause?: unknown,
): RunlakeError {
  return runlakeError(code, { step, where, reason }, { cause });
}
