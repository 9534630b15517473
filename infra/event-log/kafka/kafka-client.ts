import net from 'node:net';
import tls from 'node:tls';
import { type ISocketFactory, Kafka, logLevel, type SASLOptions } from 'kafkajs';
import type { Config } from '../../config/settings.ts';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { trustedAuthorities } from '../../tls/trusted-authorities.ts';
import { clientLogs } from './client-logs.ts';

/** Brokers and credentials of Kafka. */
export type KafkaAddress = Pick<
  Config,
  'kafkaBrokers' | 'kafkaTls' | 'kafkaSaslMechanism' | 'kafkaUser' | 'kafkaPassword' | 'tlsCaFile'
>;

export interface KafkaClient {
  readonly kafka: Kafka;
  /** Destroys the connections opened before `openedBeforeMs` (`performance.now`), so that requests on them fail at once. */
  breakConnections(openedBeforeMs: number): void;
  /** Destroys every connection and refuses new ones: this client sends nothing from now on, even if its code continues. */
  fence(): void;
}

const connectionTimeoutMs = 3_000;
const keepAliveMs = 15_000;

/**
 * Opens a Kafka client with its own connections. The library aborts neither a request on a connection that became
 * silent nor a client that hangs, so this module creates the sockets itself and can destroy them.
 *
 * @param requestTimeoutMs after this time a request fails, with its outcome unknown.
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
    if (fenced) socket.destroy(brokenOff());
    return socket;
  };
  const brokenOff = () =>
    runlakeError('KAFKA_UNAVAILABLE', {
      brokers: address.kafkaBrokers ?? '',
      reason: 'the connection was closed by Runlake',
    });
  const breakConnections = (openedBeforeMs: number) => {
    for (const [socket, openedAtMs] of sockets) if (openedAtMs <= openedBeforeMs) socket.destroy(brokenOff());
  };
  const ca = trustedAuthorities(address);
  const sasl = saslOf(address);
  const kafka = new Kafka({
    clientId: 'runlake',
    brokers: brokersOf(address),
    ...(address.kafkaTls ? { ssl: { rejectUnauthorized: true, ...(ca ? { ca } : {}) } } : {}),
    ...(sasl ? { sasl } : {}),
    connectionTimeout: connectionTimeoutMs,
    authenticationTimeout: requestTimeoutMs,
    requestTimeout: requestTimeoutMs,
    enforceRequestTimeout: true,
    retry: { initialRetryTime: 100, maxRetryTime: 1_000, retries: 2 },
    socketFactory,
    logLevel: logLevel.WARN,
    logCreator: clientLogs(logger, () => fenced),
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

function brokersOf({ kafkaBrokers }: KafkaAddress): string[] {
  return (kafkaBrokers ?? '')
    .split(',')
    .map((broker) => broker.trim())
    .filter((broker) => broker !== '');
}

function saslOf({ kafkaSaslMechanism, kafkaUser, kafkaPassword }: KafkaAddress): SASLOptions | undefined {
  if (kafkaSaslMechanism === undefined || kafkaUser === undefined || kafkaPassword === undefined) return undefined;
  return { mechanism: kafkaSaslMechanism, username: kafkaUser, password: kafkaPassword } as SASLOptions;
}
