import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { readFileIfExists, writePrivateFile } from '../../../infra/embedded/private-file.ts';
import { askPort } from '../ask-port.ts';
import { fetchPinned } from '../fetch-pinned.ts';
import { launchProgram } from '../launch-program.ts';
import type { Installation, Part } from '../part.ts';
import { redisPin } from '../pins.ts';
import type { Tools } from '../tools.ts';

const title = 'Redis';
const minVersion = 7;
const install = `redis-server ${minVersion} or newer`;

/**
 * Uses the `redis-server` of this machine if it is new enough. Otherwise it unpacks the packages of the distribution
 * into the cache, which needs no root permission and starts no service.
 */
export const redis: Part = {
  name: 'redis',
  title,
  portCount: 1,
  async install(tools) {
    const own = tools.find('redis-server');
    if (own !== undefined && (await isNewEnough(own, tools))) return { program: own, libraries: '' };
    return installFromPackages(tools);
  },
  launch({ folder, ports, installation, secret, log }) {
    const workFolder = join(folder, 'redis');
    mkdirSync(workFolder, { recursive: true, mode: 0o700 });
    const file = join(workFolder, 'redis.conf');
    const password = secret('redis');
    if (readFileIfExists(file) === undefined) {
      // Syncs every write to disk before the reply, so that queues survive a crash of the server.
      const settings = [
        'bind 127.0.0.1',
        `port ${ports[0]}`,
        `requirepass ${password}`,
        'appendonly yes',
        'appendfsync always',
        'save ""',
        'maxmemory-policy noeviction',
        // One database for each test that needs separate queues.
        'databases 4096',
        'loglevel warning',
      ];
      writePrivateFile(file, `${settings.join('\n')}\n`);
    }
    const { program = '', libraries = '' } = installation;
    return launchProgram({
      title,
      folder,
      workFolder,
      program,
      args: [file],
      ...(libraries === '' ? {} : { environment: { LD_LIBRARY_PATH: libraries } }),
      ask: () => ping(ports[0] ?? 0, password),
      explains: /# |FATAL|error/i,
      log,
    });
  },
  values: ({ ports, secret }) => ({ url: `redis://:${secret('redis')}@127.0.0.1:${ports[0]}` }),
  check(values) {
    const { port, password } = new URL(values.url ?? '');
    return ping(Number(port), password);
  },
  exports: (values) => ({ RUNLAKE_REDIS_URL: values.url ?? '' }),
};

async function ping(port: number, password: string): Promise<string> {
  // The response has two lines, one for each command; an error is also one line.
  const question = `AUTH ${password}\r\nPING\r\n`;
  const result = await askPort(port, question, (bytes) => /^.*\r\n.*\r\n$/.test(bytes.toString()));
  if ('reason' in result) return result.reason;
  const text = result.answer.toString();
  return text.includes('+PONG') ? 'ready' : text.trim();
}

async function isNewEnough(program: string, tools: Tools): Promise<boolean> {
  const output = await tools.run(title, program, ['--version'], '/');
  return Number(/v=(\d+)/.exec(output)?.[1] ?? 0) >= minVersion;
}

/**
 * Installs from the packages of the distribution. `apt-get` uses its own package lists in the cache: it reads only the
 * system's list of sources, and changes nothing in the system.
 */
async function installFromPackages(tools: Tools): Promise<Installation> {
  const folder = await fetchPinned({
    part: 'redis',
    pin: redisPin,
    cacheFolder: tools.cacheFolder,
    // Distributions delete old versions when they publish new ones; `apt-get` verifies signatures.
    allowsUnpinned: true,
    async download(draft) {
      const apt = tools.requireProgram(title, ['apt-get'], install);
      tools.requireProgram(title, ['dpkg-deb'], install);
      tools.say(`${title}: downloading`);
      const lists = join(draft, 'lists');
      mkdirSync(join(lists, 'partial'), { recursive: true });
      mkdirSync(join(draft, 'archives', 'partial'), { recursive: true });
      const places = [
        '-qq',
        '-o',
        `Dir::State::Lists=${lists}`,
        '-o',
        `Dir::Cache=${draft}`,
        '-o',
        'APT::Sandbox::User=',
      ];
      await tools.run(title, apt, [...places, 'update'], draft);
      await tools.run(title, apt, [...places, 'download', ...redisPin.packages], join(draft, 'files'));
    },
    async unpack(draft) {
      for (const file of readdirSync(join(draft, 'files'))) {
        await tools.run(
          title,
          tools.requireProgram(title, ['dpkg-deb'], install),
          ['-x', join('files', file), 'root'],
          draft,
        );
      }
    },
  });
  const libraries = join(folder, 'root', 'usr', 'lib');
  const triplets = readdirSync(libraries).filter((name) => name.includes('-linux-'));
  return {
    program: join(folder, 'root', 'usr', 'bin', 'redis-server'),
    libraries: triplets.map((name) => join(libraries, name)).join(':'),
  };
}
