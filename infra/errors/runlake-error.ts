import { catalogue, type ErrorClass, type ErrorCode, type ErrorEntry } from './catalogue.ts';

export type ErrorParameters = Readonly<Record<string, string | number>>;

/** An invalid field of a request, as an item of a validation error. */
export interface FieldError {
  readonly loc: ReadonlyArray<string | number>;
  readonly msg: string;
  readonly type: string;
}

export interface RunlakeErrorOptions {
  /**
   * The original error. Responses never contain it, because it may contain customer data or text of the server. The log
   * contains its name, its code and the start of its message without quoted values.
   */
  readonly cause?: unknown;
  /** Invalid fields, for responses that list them. */
  readonly fields?: readonly FieldError[];
  /** Status that user code has chosen. It overrides the status in the catalogue. */
  readonly status?: number;
  /** Seconds after which the client should retry. Sent as `Retry-After`. */
  readonly retryAfterSeconds?: number;
}

/** The only error class that Runlake throws. {@link runlakeError} creates instances with the text of the catalogue. */
export class RunlakeError extends Error {
  override readonly name = 'RunlakeError';
  readonly code: ErrorCode;
  readonly status: number;
  readonly class: ErrorClass;
  readonly remedy: string;
  readonly fields: readonly FieldError[] | undefined;
  readonly retryAfterSeconds: number | undefined;
  /** The parameters passed to {@link runlakeError}. With them, another process can recreate the same error. */
  declare readonly parameters: ErrorParameters;

  constructor(code: ErrorCode, parameters: ErrorParameters, options: RunlakeErrorOptions) {
    const entry: ErrorEntry = catalogue[code];
    super(fillTemplate(entry.message, parameters));
    this.code = code;
    this.status = options.status ?? entry.status;
    this.class = entry.class;
    this.remedy = fillTemplate(entry.remedy, parameters);
    this.fields = options.fields;
    this.retryAfterSeconds = options.retryAfterSeconds;
    Object.defineProperty(this, 'parameters', { value: parameters, enumerable: false });
    Object.defineProperty(this, 'cause', { value: options.cause, enumerable: false });
  }
}

/**
 * Creates the error `code` of the catalogue. `parameters` replace the placeholders in the message and the remedy.
 * Errors of class `caller` have no stack trace: it would not help the caller, and capturing a stack trace for each run
 * of a large invalid batch is expensive.
 */
export function runlakeError(
  code: ErrorCode,
  parameters: ErrorParameters = {},
  options: RunlakeErrorOptions = {},
): RunlakeError {
  const { stackTraceLimit } = Error;
  if (catalogue[code].class === 'caller') Error.stackTraceLimit = 0;
  try {
    return new RunlakeError(code, parameters, options);
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Returns the message and the remedy, for a text that is stored or shown. It has no cause, which may contain secrets. */
export function formatWithRemedy({ message, remedy }: RunlakeError): string {
  return `${message} ${remedy}`;
}

export function isRunlakeError(value: unknown): value is RunlakeError {
  try {
    return value instanceof RunlakeError;
  } catch {
    // The value is a revoked proxy, or a proxy that throws.
    return false;
  }
}

/** Returns whether the call that failed may succeed later. */
export function isTransient(error: unknown): error is RunlakeError {
  return isRunlakeError(error) && error.class === 'transient';
}

function fillTemplate(template: string, parameters: ErrorParameters): string {
  return template.replace(/\{(\w+)\}/g, (whole, name: string) =>
    Object.hasOwn(parameters, name) ? String(parameters[name]) : whole,
  );
}
