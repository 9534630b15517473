import type { ErrorCode } from '../errors/catalogue.ts';
import { fault, type RunlakeError } from '../errors/runlake-error.ts';

/** What an object store was asked to do when it failed; the checks of a destination are called the same. */
export type ObjectStep = 'reach' | 'write' | 'read' | 'delete' | 'upload';

export interface ObjectCall {
  readonly step: ObjectStep;
  /** The object or the place that it is about, as its owner names it. */
  readonly where: string;
}

type DestinationCode = Extract<ErrorCode, `DESTINATION_${string}`>;

/** An error of the catalogue about one call of a store, with a reason in words for the owner of the place. */
export function destinationFault(
  code: DestinationCode,
  { step, where }: ObjectCall,
  reason: string,
  cause?: unknown,
): RunlakeError {
  return fault(code, { step, where, reason }, { cause });
}
