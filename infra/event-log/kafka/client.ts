/**
 * Kafka clients whose sockets can be destroyed, the errors and log lines of these clients, and the client for admin
 * requests.
 */
import net from 'node:net';
import tls from 'node:tls';
import { type Admin, type ISocketFactory, Kafka, type logCreator, logLevel, type SASLOptions } from 'kafkajs';
import { LRUCache } from 'lru-cache';
import type { Config } from '../../config/settings.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import { readTrustedAuthorities } from '../../tls/trusted-authorities.ts';

/** Brokers of Kafka and credentials for them. */
export type KafkaAddress = Pick<
  Config,
  'kafkaBrokers' | 'kafkaTls' | 'kafkaSaslMechanism' | 'kafkaUser' | 'kafkaPassword' | 'tlsCaFile'
>;

export interface KafkaClient {
  readonly kafka: Kafka;
  /**
   * Destroys the connections that were opened before `openedBeforeMs` (`performance.now`), so that requests on them
   * fail immediately.
   */
  breakConnections(openedBeforeMs: number): void;
  /**
   * Destroys all connections and refuses new connections. From then on, this client sends nothing, even if its code
   * continues to run.
   */
  fence(): void;
}

const connectionTimeoutMs = 3_000;
const keepAliveMs = 15_000;

/**
 * Opens a Kafka client with its own connections. The library aborts neither requests on an unresponsive connection nor
 * a client that hangs. Therefore this module creates the sockets itself and can destroy them.
 *
 * @param requestTimeoutMs time after which a request fails; its outcome is then unknown.
 * @throws TLS_FILE_UNUSABLE
 */
export function openKafkaClient(address: KafkaAddress, requestTimeoutMs: number, logger: Logger): KafkaClient {
  const sockets = new Map<net.Socket, number>();
  let fenced = false;
  const socketFactory: ISocketFactory = ({ host, port, ssl, onConnect }) => {
    const socket =
      Object.keys(ssl ?? {}).length > 0
        ? tls.connect({ host, port, ...(net.isIP(host) ? {} : { servername: host }), ...ssl }, onConnect)
        : net.connect({ host, port }, onConnect);
    socket.setKeepAlive(true, keepAliveMs);
    socket.setNoDelay(true);
    sockets.set(socket, performance.now());
    socket.once('close', () => sockets.delete(socket));
    if (fenced) socket.destroy(createBrokenConnectionError());
    return socket;
  };
  const brokers = address.kafkaBrokers ?? '';
  const createBrokenConnectionError = () =>
    runlakeError('KAFKA_UNAVAILABLE', { brokers, reason: 'the connection was closed by Runlake' });
  const breakConnections = (openedBeforeMs: number) => {
    for (const [socket, openedAtMs] of sockets)
      if (openedAtMs <= openedBeforeMs) socket.destroy(createBrokenConnectionError());
  };
  const ca = readTrustedAuthorities(address);
  const sasl = buildSaslOptions(address);
  const kafka = new Kafka({
    clientId: 'runlake',
    brokers: brokers
      .split(',')
      .map((broker) => broker.trim())
      .filter((broker) => broker !== ''),
    ...(address.kafkaTls ? { ssl: { rejectUnauthorized: true, ...(ca ? { ca: [...ca] } : {}) } } : {}),
    ...(sasl ? { sasl } : {}),
    connectionTimeout: connectionTimeoutMs,
    authenticationTimeout: requestTimeoutMs,
    requestTimeout: requestTimeoutMs,
    enforceRequestTimeout: true,
    retry: { initialRetryTime: 100, maxRetryTime: 1_000, retries: 2 },
    socketFactory,
    logLevel: logLevel.WARN,
    logCreator: createLogCreator(logger, () => fenced),
  });
  return {
    kafka,
    breakConnections,
    fence() {
      fenced = true;
      breakConnections(Number.POSITIVE_INFINITY);
    },
  };
}

function buildSaslOptions({ kafkaSaslMechanism, kafkaUser, kafkaPassword }: KafkaAddress): SASLOptions | undefined {
  if (kafkaSaslMechanism === undefined || kafkaUser === undefined || kafkaPassword === undefined) return undefined;
  return { mechanism: kafkaSaslMechanism, username: kafkaUser, password: kafkaPassword } as SASLOptions;
}

/**
 * Fields of the client's log lines that are copied. Other fields may contain requests, stack traces and internal
 * objects.
 */
const loggedFields = ['broker', 'groupId', 'memberId', 'topic', 'partition', 'retryCount', 'retryTime'] as const;
const logIntervalMs = 30_000;
const maxRememberedLines = 200;

/**
 * Forwards the log lines of the client. Errors are logged as warnings, because Runlake logs their effect itself. All
 * other lines, and all lines of a fenced client, are logged at debug level. While a broker is down, the client repeats
 * its lines at each attempt; therefore the same line is logged at most once in 30 seconds.
 */
function createLogCreator(logger: Logger, isFenced: () => boolean): logCreator {
  const recentLines = new LRUCache<string, true>({ max: maxRememberedLines, ttl: logIntervalMs });
  return () =>
    ({ namespace, level, log }) => {
      const { message } = log;
      const text = `${namespace}: ${message.replace(/\d+/g, '0')}`;
      if (recentLines.has(text)) return;
      recentLines.set(text, true);
      const fields = Object.fromEntries(
        loggedFields.filter((name) => log[name] !== undefined).map((name) => [name, log[name]]),
      );
      const compression = / (\w+) compression not implemented$/.exec(message)?.[1];
      if (compression !== undefined) return logger.error(fields, explainUnreadable(compression));
      const logLevelName = level === logLevel.ERROR && !isFenced() ? 'warn' : 'debug';
      logger[logLevelName](fields, `kafka client: ${message}`.slice(0, 500));
    };
}

/** The brokers have compressed batches because `compression.type` of the topic was set while Runlake used it. */
const explainUnreadable = (compression: string) =>
  `batches behind a committed offset of this group are compressed with ${compression}, which Runlake cannot read: set compression.type ` +
  'of the topic to producer, write their records to the topic again with another client, and move the offset behind them';

interface ClientError {
  readonly name?: unknown;
  readonly type?: unknown;
  readonly message?: unknown;
  readonly cause?: unknown;
  readonly originalError?: unknown;
}

/**
 * Returns the names of the broker's errors (`NOT_ENOUGH_REPLICAS`, …) and of the client's error classes, ordered from
 * the outermost error to the innermost cause.
 */
export function listErrorNames(error: unknown): string[] {
  const errorNames: string[] = [];
  let current = error as ClientError | undefined;
  for (let depth = 0; current && typeof current === 'object' && depth < 6; depth++) {
    for (const kind of [current.type, current.name]) if (typeof kind === 'string') errorNames.push(kind);
    current = (current.cause ?? current.originalError) as ClientError | undefined;
  }
  return errorNames;
}

/** Error names for failed authentication and missing permissions. */
const accessErrorNames = [
  'KafkaJSSASLAuthenticationError',
  'SASL_AUTHENTICATION_FAILED',
  'UNSUPPORTED_SASL_MECHANISM',
  'ILLEGAL_SASL_STATE',
  'TOPIC_AUTHORIZATION_FAILED',
  'GROUP_AUTHORIZATION_FAILED',
  'CLUSTER_AUTHORIZATION_FAILED',
];

/** Returns true if the error or one of its causes has a name that is in `kinds`. */
export function hasErrorName(error: unknown, kinds: readonly string[]): boolean {
  return listErrorNames(error).some((kind) => kinds.includes(kind));
}

/** Converts an error of the client to ACCESS_DENIED_BY_STORE or KAFKA_UNAVAILABLE. Returns a RunlakeError unchanged. */
export function toKafkaError(error: unknown, brokers: string | undefined): RunlakeError {
  if (isRunlakeError(error)) return error;
  const reason = String((error as ClientError)?.message ?? error).slice(0, 200);
  return hasErrorName(error, accessErrorNames)
    ? runlakeError('ACCESS_DENIED_BY_STORE', { store: 'Kafka', reason }, { cause: error })
    : runlakeError('KAFKA_UNAVAILABLE', { brokers: brokers ?? '', reason }, { cause: error, retryAfterSeconds: 2 });
}

const adminRequestTimeoutMs = 5_000;
const adminCallTimeoutMs = 15_000;

/** Runs admin requests on a shared client. After a failure, the next call opens a new client. */
export class KafkaAdmin {
  readonly #address: KafkaAddress;
  readonly #logger: Logger;
  #link: { readonly client: KafkaClient; readonly admin: Promise<Admin> } | undefined;
  #closed = false;

  constructor(address: KafkaAddress, logger: Logger) {
    this.#address = address;
    this.#logger = logger;
  }

  /**
   * Calls `work` with the admin client.
   *
   * @throws KAFKA_UNAVAILABLE, ACCESS_DENIED_BY_STORE, and the RunlakeErrors that `work` throws.
   */
  async call<Result>(work: (admin: Admin) => Promise<Result>): Promise<Result> {
    this.#link ??= this.#open();
    const link = this.#link;
    const result = link.admin.then(work);
    try {
      if (!(await settlesBeforeTimeout(result, adminCallTimeoutMs))) {
        throw toKafkaError({ message: `no answer within ${adminCallTimeoutMs} ms` }, this.#address.kafkaBrokers);
      }
      return await result;
    } catch (error) {
      result.catch(() => undefined);
      if (isRunlakeError(error) && error.code !== 'KAFKA_UNAVAILABLE') throw error;
      link.client.fence();
      if (this.#link === link) this.#link = undefined;
      throw toKafkaError(error, this.#address.kafkaBrokers);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    const link = this.#link;
    this.#link = undefined;
    if (link === undefined) return;
    await settlesBeforeTimeout(
      link.admin.then((admin) => admin.disconnect()),
      1_000,
    );
    link.client.fence();
  }

  #open() {
    const client = openKafkaClient(this.#address, adminRequestTimeoutMs, this.#logger);
    if (this.#closed) client.fence();
    const admin = client.kafka.admin();
    const connected = admin.connect().then(() => admin);
    connected.catch(() => undefined);
    return { client, admin: connected };
  }
}
