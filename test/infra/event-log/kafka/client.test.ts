/** TLS and SASL on a real broker that requires them: correct settings work, wrong ones are reported. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { explainPart } from '../../../../api/command-line/explain-part.ts';
import { loadConfig } from '../../../../infra/config/load.ts';
import type { Config } from '../../../../infra/config/settings.ts';
import { isRunlakeError } from '../../../../infra/errors/runlake-error.ts';
import { buildWirePrefix } from '../../../../infra/event-log/avro.ts';
import type { LogRecord } from '../../../../infra/event-log/event-log.ts';
import { inspectKafka } from '../../../../infra/event-log/kafka/health.ts';
import { openKafkaLog } from '../../../../infra/event-log/kafka/kafka-log.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { logger } from '../../../silent-logger.ts';
import { authorityFile, otherAuthorityFile } from '../../tls/certificates.ts';
import { until } from '../../until.ts';
import { type GuardedBroker, guardedUser, type Listener, startGuardedBroker } from './guarded-broker.ts';
import { kafkaServers } from './kafka-under-test.ts';

vi.setConfig({ testTimeout: 90_000, hookTimeout: 200_000 });

type BrokerSecurity = Partial<
  Pick<Config, 'kafkaTls' | 'kafkaSaslMechanism' | 'kafkaUser' | 'kafkaPassword' | 'tlsCaFile'>
>;

const servers = kafkaServers();
const tlsSecurity: BrokerSecurity = { kafkaTls: true, tlsCaFile: authorityFile };
const plain: BrokerSecurity = { ...guardedUser, kafkaSaslMechanism: 'plain' };
const scram256: BrokerSecurity = { ...guardedUser, kafkaSaslMechanism: 'scram-sha-256' };
const scram512: BrokerSecurity = { ...guardedUser, kafkaSaslMechanism: 'scram-sha-512' };

describe.runIf(servers)('a broker that requires TLS and SASL', () => {
  let broker: GuardedBroker;
  beforeAll(async () => {
    broker = await startGuardedBroker();
  });
  afterAll(() => broker?.stop());

  const configOf = (listener: Listener, security: BrokerSecurity): Config => ({
    ...loadConfig({}).config,
    kafkaBrokers: broker.addresses[listener],
    kafkaTopicPrefix: `test-${randomBytes(6).toString('hex')}.`,
    kafkaPartitions: 1,
    schemaRegistryUrl: servers?.registryUrl,
    insertBatchMs: 50,
    ...security,
  });

  test.each<[string, Listener, BrokerSecurity]>([
    ['TLS alone', 'encrypted', tlsSecurity],
    ['PLAIN over TLS', 'guarded', { ...tlsSecurity, ...plain }],
    ['SCRAM-SHA-256 over TLS', 'guarded', { ...tlsSecurity, ...scram256 }],
    ['SCRAM-SHA-512 over TLS', 'strict', { ...tlsSecurity, ...scram512 }],
    ['SCRAM-SHA-256 without TLS', 'bare', scram256],
  ])('%s: an event goes there and comes back', async (_case, listener, guards) => {
    const log = await openKafkaLog({ config: configOf(listener, guards), topics: [runEvents], logger });
    const records: LogRecord[] = [];
    onTestFinished(() => log.close());
    const value = Buffer.concat([buildWirePrefix(log.schemaId(runEvents)), Buffer.from('hello')]);
    await log.publish(runEvents, [{ key: 'k', value }]);
    await log.subscribe({
      topic: runEvents,
      group: 'guarded',
      limits: { rows: 10, bytes: 1024 * 1024 },
      handle: async (batch) => void records.push(...batch.records),
    });
    await until('the event to be consumed', () => records.length > 0, 60_000);
    expect(records[0]?.value.equals(value)).toBe(true);
  });

  const denied = 'ACCESS_DENIED_BY_STORE';
  const unavailable = 'KAFKA_UNAVAILABLE';
  const refusedMessage = /refuses the user, the password or the mechanism → .*RUNLAKE_KAFKA_PASSWORD/;
  test.each<[string, Listener, BrokerSecurity, string, RegExp]>([
    [
      'a wrong password, PLAIN',
      'guarded',
      { ...tlsSecurity, ...plain, kafkaPassword: 'wrong' },
      denied,
      refusedMessage,
    ],
    [
      'a wrong password, SCRAM-SHA-256',
      'guarded',
      { ...tlsSecurity, ...scram256, kafkaPassword: 'wrong' },
      denied,
      refusedMessage,
    ],
    [
      'a wrong password, SCRAM-SHA-512',
      'strict',
      { ...tlsSecurity, ...scram512, kafkaPassword: 'wrong' },
      denied,
      refusedMessage,
    ],
    ['an unknown user', 'guarded', { ...tlsSecurity, ...scram256, kafkaUser: 'nobody' }, denied, refusedMessage],
    ['a mechanism that is not taken there', 'strict', { ...tlsSecurity, ...plain }, denied, refusedMessage],
    [
      'no SASL settings for a broker that requires SASL',
      'guarded',
      tlsSecurity,
      unavailable,
      /RUNLAKE_KAFKA_SASL_MECHANISM/,
    ],
    ['TLS to a port without it', 'bare', { ...tlsSecurity, ...plain }, unavailable, /RUNLAKE_KAFKA_TLS=false/],
    ['no TLS to a port that speaks it', 'encrypted', {}, unavailable, /RUNLAKE_KAFKA_TLS=true/],
    ['no TLS, signing in', 'guarded', plain, unavailable, /RUNLAKE_KAFKA_TLS=true/],
    [
      'an authority that is not configured',
      'encrypted',
      { kafkaTls: true },
      unavailable,
      /authority that is not trusted → .*RUNLAKE_TLS_CA_FILE/,
    ],
    [
      'another authority',
      'guarded',
      { ...tlsSecurity, ...plain, tlsCaFile: otherAuthorityFile },
      unavailable,
      /authority that is not trusted → .*RUNLAKE_TLS_CA_FILE/,
    ],
  ])('%s is named', async (_case, listener, guards, code, words) => {
    const config = configOf(listener, guards);
    const error = await inspectKafka({ config, topics: [runEvents], logger }).then(
      (found) => expect.fail(`it said: ${found}`),
      (reason: unknown) => reason,
    );
    const explanation = explainPart(error, { name: 'Kafka', address: config.kafkaBrokers ?? '' });
    expect(isRunlakeError(error) && error.code, String(error)).toBe(code);
    expect(`${explanation?.words} → ${explanation?.remedy}`, String(error)).toMatch(words);
    expect(`${error} ${explanation?.words}`).not.toContain(guardedUser.kafkaPassword);
  });
});
