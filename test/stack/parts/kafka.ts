import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { readFileIfExists, writePrivateFile } from '../../../infra/embedded/private-file.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { fetchPinned } from '../fetch-pinned.ts';
import { findJava } from '../find-java.ts';
import { fastStartOptions } from '../java-options.ts';
import { launchProgram } from '../launch-program.ts';
import type { LaunchOptions, Part } from '../part.ts';
import { kafkaPin } from '../pins.ts';
import { downloadWithMaven } from '../run-maven.ts';
import { checkKafka } from './kafka-metadata.ts';

const title = `Kafka ${kafkaPin.version}`;
const pom = fileURLToPath(new URL('../kafka-pom.xml', import.meta.url));
const settings = new URL('../kafka-server.properties', import.meta.url);
const heap = '-Xmx512m';

/** A single node that is both broker and controller (KRaft), with internal topics that have one replica. */
export const kafka: Part = {
  name: 'kafka',
  title,
  portCount: 2,
  async install(tools) {
    const java = await findJava(title, tools);
    const folder = await fetchPinned({
      part: 'kafka',
      pin: kafkaPin,
      cacheFolder: tools.cacheFolder,
      download: (draft) => downloadWithMaven(title, tools, draft, { goal: 'copy-dependencies', args: ['-f', pom] }),
    });
    return { java, classPath: join(folder, 'files', '*') };
  },
  async launch(options) {
    const { ports, installation, log } = options;
    const workFolder = join(options.folder, 'kafka');
    const properties = await ensureStorage(options, workFolder);
    return launchProgram({
      title,
      folder: options.folder,
      workFolder,
      program: installation.java ?? '',
      args: [
        heap,
        ...(options.isShortLived ? fastStartOptions : []),
        '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
        '-cp',
        installation.classPath ?? '',
        'kafka.Kafka',
        properties,
      ],
      ask: () => checkKafka(ports[0] ?? 0),
      explains: /ERROR|Exception/,
      log,
    });
  },
  values: ({ ports }) => ({ brokers: `127.0.0.1:${ports[0]}` }),
  check: ({ brokers = '' }) => checkKafka(Number(brokers.split(':')[1])),
  exports: ({ brokers = '' }) => ({ RUNLAKE_KAFKA_BROKERS: brokers }),
};

/**
 * Writes the settings and formats the storage, but only once.
 *
 * @returns the path of the settings.
 */
async function ensureStorage(options: LaunchOptions, workFolder: string): Promise<string> {
  const properties = join(workFolder, 'server.properties');
  const data = join(workFolder, 'data');
  mkdirSync(workFolder, { recursive: true, mode: 0o700 });
  if (readFileIfExists(properties) === undefined) writePrivateFile(properties, serverProperties(options.ports, data));
  if (existsSync(join(data, 'meta.properties'))) return properties;
  const { java = '', classPath = '' } = options.installation;
  // A cluster id is 16 bytes in base64; because of the leading `x`, it is not parsed as an option.
  const clusterId = `x${options.secret('kafka cluster')}`.slice(0, 21).concat('A');
  try {
    const format = [
      '-Xmx128m',
      ...fastStartOptions,
      '-cp',
      classPath,
      'kafka.tools.StorageTool',
      'format',
      '-t',
      clusterId,
      '-c',
      properties,
    ];
    await promisify(execFile)(java, format);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw runlakeError('ENGINE_START_FAILED', { engine: title, reason }, { cause: error });
  }
  return properties;
}

function serverProperties([port, controllerPort]: readonly number[], data: string): string {
  const own = {
    'controller.quorum.voters': `1@127.0.0.1:${controllerPort}`,
    listeners: `PLAINTEXT://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controllerPort}`,
    'advertised.listeners': `PLAINTEXT://127.0.0.1:${port}`,
    'log.dirs': data,
  };
  const lines = Object.entries(own).map(([name, value]) => `${name}=${value}\n`);
  return `${readFileSync(settings, 'utf8')}${lines.join('')}`;
}
