import { execFile } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { withFreePorts } from '../../../../infra/embedded/free-port.ts';
import { fastStartOptions } from '../../../stack/java-options.ts';
import { launchProgram } from '../../../stack/launch-program.ts';
import { kafka } from '../../../stack/parts/kafka.ts';
import { checkKafka } from '../../../stack/parts/kafka-metadata.ts';
import { loadStackSettings } from '../../../stack/stack-settings.ts';
import { openTools } from '../../../stack/tools.ts';
import { serverCertificate } from '../../tls/certificates.ts';

/** Listeners of the broker, each with its own port. */
const listeners = {
  open: 'PLAINTEXT',
  encrypted: 'SSL',
  guarded: 'SASL_SSL',
  /** A listener with SASL without encryption. */
  bare: 'SASL_PLAINTEXT',
  /** A listener that accepts only the strongest mechanism. */
  strict: 'SASL_SSL',
} as const;
export type Listener = keyof typeof listeners;

export const guardedUser = { kafkaUser: 'ann', kafkaPassword: 'correct horse' };

export interface GuardedBroker {
  /** Values for RUNLAKE_KAFKA_BROKERS. */
  readonly addresses: Readonly<Record<Listener, string>>;
  stop(): Promise<void>;
}

/** Starts a separate broker from the stack's installation, with one listener for each security protocol. */
export async function startGuardedBroker(): Promise<GuardedBroker> {
  const { java = '', classPath = '' } = await kafka.install(openTools(loadStackSettings(), () => {}));
  const names = Object.keys(listeners) as Listener[];
  const folder = mkdtempSync(join(tmpdir(), 'runlake-guarded-'));
  chmodSync(folder, 0o700);
  const remove = () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  const start = async (ports: readonly number[]) => {
    const workFolder = mkdtempSync(join(folder, 'kafka-'));
    const properties = join(workFolder, 'server.properties');
    writeFileSync(properties, buildProperties(ports, workFolder));
    const { kafkaUser, kafkaPassword } = guardedUser;
    const users = ['SCRAM-SHA-256', 'SCRAM-SHA-512'].flatMap((mechanism) => [
      '--add-scram',
      `${mechanism}=[name=${kafkaUser},password=${kafkaPassword}]`,
    ]);
    const format = ['format', '-t', 'MkU3OEVBNTcwNTJENDM2Qg', '-c', properties, ...users];
    await promisify(execFile)(java, [
      '-Xmx128m',
      ...fastStartOptions,
      '-cp',
      classPath,
      'kafka.tools.StorageTool',
      ...format,
    ]);
    const engine = await launchProgram({
      title: 'Guarded Kafka',
      folder,
      workFolder,
      program: java,
      args: [
        '-Xmx384m',
        ...fastStartOptions,
        '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
        '-cp',
        classPath,
        'kafka.Kafka',
        properties,
      ],
      ask: () => checkKafka(ports[0] ?? 0),
      explains: /ERROR|Exception/,
      log: () => {},
    });
    const addresses = Object.fromEntries(names.map((name, index) => [name, `localhost:${ports[index]}`]));
    return { engine, addresses: addresses as Record<Listener, string> };
  };
  try {
    const { engine, addresses } = await withFreePorts(names.length + 1, start);
    return {
      addresses,
      async stop() {
        await engine.stop();
        remove();
      },
    };
  } catch (error) {
    remove();
    throw error;
  }
}

function buildProperties(ports: readonly number[], folder: string): string {
  const names = Object.keys(listeners) as Listener[];
  const controllerPort = ports[names.length];
  const places = names.map((name, index) => `${name.toUpperCase()}://localhost:${ports[index]}`);
  const { cert, key } = serverCertificate();
  const store = join(folder, 'server.pem');
  writeFileSync(store, Buffer.concat([key, cert]), { mode: 0o600 });
  const { kafkaUser, kafkaPassword } = guardedUser;
  const plain = `org.apache.kafka.common.security.plain.PlainLoginModule required user_${kafkaUser}="${kafkaPassword}";`;
  const scram = 'org.apache.kafka.common.security.scram.ScramLoginModule required;';
  const own: Record<string, string> = {
    'controller.quorum.voters': `1@localhost:${controllerPort}`,
    listeners: [...places, `CONTROLLER://localhost:${controllerPort}`].join(','),
    'advertised.listeners': places.join(','),
    'listener.security.protocol.map': [
      ...names.map((name) => `${name.toUpperCase()}:${listeners[name]}`),
      'CONTROLLER:PLAINTEXT',
    ].join(','),
    'inter.broker.listener.name': 'OPEN',
    'log.dirs': join(folder, 'data'),
    'ssl.keystore.type': 'PEM',
    'ssl.keystore.location': store,
    'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-256,SCRAM-SHA-512',
    'listener.name.strict.sasl.enabled.mechanisms': 'SCRAM-SHA-512',
  };
  for (const name of ['guarded', 'bare', 'strict']) {
    own[`listener.name.${name}.plain.sasl.jaas.config`] = plain;
    own[`listener.name.${name}.scram-sha-256.sasl.jaas.config`] = scram;
    own[`listener.name.${name}.scram-sha-512.sasl.jaas.config`] = scram;
  }
  const stack = readFileSync(new URL('../../../stack/kafka-server.properties', import.meta.url), 'utf8');
  return `${stack}\n${Object.entries(own)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('')}`;
}
