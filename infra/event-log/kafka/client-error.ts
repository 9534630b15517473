import { isRunlakeError, type RunlakeError, runlakeError } from '../../errors/runlake-error.ts';

interface ClientError {
  readonly name?: unknown;
  readonly type?: unknown;
  readonly message?: unknown;
  readonly cause?: unknown;
  readonly originalError?: unknown;
}

/** Names of the broker's errors (`NOT_ENOUGH_REPLICAS`, …) and of the client's classes, from the outermost cause inwards. */
export function kindsOf(error: unknown): string[] {
  const kinds: string[] = [];
  let current = error as ClientError | undefined;
  for (let depth = 0; current && typeof current === 'object' && depth < 6; depth++) {
    for (const kind of [current.type, current.name]) if (typeof kind === 'string') kinds.push(kind);
    current = (current.cause ?? current.originalError) as ClientError | undefined;
  }
  return kinds;
}

const accessKinds = [
  'KafkaJSSASLAuthenticationError',
  'SASL_AUTHENTICATION_FAILED',
  'UNSUPPORTED_SASL_MECHANISM',
  'ILLEGAL_SASL_STATE',
  'TOPIC_AUTHORIZATION_FAILED',
  'GROUP_AUTHORIZATION_FAILED',
  'CLUSTER_AUTHORIZATION_FAILED',
];

/** Converts an error of the client to ACCESS_DENIED_BY_STORE or KAFKA_UNAVAILABLE; returns a catalogue error unchanged. */
export function kafkaError(error: unknown, brokers: string | undefined): RunlakeError {
  if (isRunlakeError(error)) return error;
  const reason = String((error as ClientError)?.message ?? error).slice(0, 200);
  return kindsOf(error).some((kind) => accessKinds.includes(kind))
    ? runlakeError('ACCESS_DENIED_BY_STORE', { store: 'Kafka', reason }, { cause: error })
    : runlakeError('KAFKA_UNAVAILABLE', { brokers: brokers ?? '', reason }, { cause: error, retryAfterSeconds: 2 });
}
