import { catalogue, type ErrorClass, type ErrorCode, type ErrorEntry } from './catalogue.ts';

export type ErrorParameters = Readonly<Record<string, string | number>>;

/** One fault inside a request, in the shape that SPEC 2.3 gives a validation error's items. */
export interface FieldFault {
  readonly loc: ReadonlyArray<string | number>;
  readonly msg: string;
  readonly type: string;
}

export interface ErrorOptionsOfRunlake {
  /**
   * The raw fault. Kept out of answers, for it may hold customer data or server text. The log keeps its name, its code and
   * the beginning of its text without what is quoted there.
   */
  readonly cause?: unknown;
  /** Faults by field, for answers that list them. */
  readonly fields?: readonly FieldFault[];
  /** Status that code of others chose, in place of the catalogue's. */
  readonly status?: number;
  /** Seconds after which a retry makes sense; sent as `Retry-After`. */
  readonly retryAfterSeconds?: number;
}

/** The only error class that Runlake throws. Its text comes from the catalogue; made by {@link fault}. */
export class RunlakeError extends Error {
  override readonly name = 'RunlakeError';
  readonly code: ErrorCode;
  readonly status: number;
  readonly class: ErrorClass;
  readonly retryable: boolean;
  readonly remedy: string;
  readonly fields: readonly FieldFault[] | undefined;
  readonly retryAfterSeconds: number | undefined;
  /** With which {@link fault} makes the same error in another process. */
  declare readonly parameters: ErrorParameters;

  constructor(code: ErrorCode, parameters: ErrorParameters, options: ErrorOptionsOfRunlake) {
    const entry: ErrorEntry = catalogue[code];
    super(fill(entry.message, parameters));
    this.code = code;
    this.status = options.status ?? entry.status;
    this.class = entry.class;
    this.retryable = entry.retryable;
    this.remedy = fill(entry.remedy, parameters);
    this.fields = options.fields;
    this.retryAfterSeconds = options.retryAfterSeconds;
    Object.defineProperty(this, 'parameters', { value: parameters, enumerable: false });
    Object.defineProperty(this, 'cause', { value: options.cause, enumerable: false });
  }
}

/**
 * Makes the catalogue's error `code`; `parameters` fill the placeholders of its message and remedy. Faults of the caller carry no
 * stack: it says nothing of the request, and a batch of a hundred thousand bad runs would pay for each.
 */
export function fault(
  code: ErrorCode,
  parameters: ErrorParameters = {},
  options: ErrorOptionsOfRunlake = {},
): RunlakeError {
  const { stackTraceLimit } = Error;
  if (catalogue[code].class === 'caller') Error.stackTraceLimit = 0;
  try {
    return new RunlakeError(code, parameters, options);
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

export function isRunlakeError(value: unknown): value is RunlakeError {
  return value instanceof RunlakeError;
}

function fill(template: string, parameters: ErrorParameters): string {
  return template.replace(/\{(\w+)\}/g, (whole, name: string) =>
    Object.hasOwn(parameters, name) ? String(parameters[name]) : whole,
  );
}
