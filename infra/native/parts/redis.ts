import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { readFileIfThere, writePrivateFile } from '../../embedded/private-file.ts';
import { askPort } from '../ask-port.ts';
import { fetchPinned } from '../fetch-pinned.ts';
import { launchProgram } from '../launch-program.ts';
import type { Installation, Part } from '../part.ts';
import { redisPin } from '../pins.ts';
import type { Tools } from '../tools.ts';

const title = 'Redis';
const oldest = 7;
const install = `redis-server ${oldest} or newer`;

/**
 * The `redis-server` of this machine where it has one that is new enough, else the packages of its distribution, unpacked into
 * the cache, which needs no root and starts no service.
 */
export const redis: Part = {
  name: 'redis',
  title,
  portCount: 1,
  async install(tools) {
    const own = tools.find('redis-server');
    if (own !== undefined && (await isNewEnough(own, tools))) return { program: own, libraries: '' };
    return fromPackages(tools);
  },
  launch({ folder, ports, installation, secret, log }) {
    const workFolder = join(folder, 'redis');
    mkdirSync(workFolder, { recursive: true, mode: 0o700 });
    const file = join(workFolder, 'redis.conf');
    const password = secret('redis');
    if (readFileIfThere(file) === undefined) {
      // Every write is on disk before it is answered: a queue outlives the server.
      const settings = [
        'bind 127.0.0.1',
        `port ${ports[0]}`,
        `requirepass ${password}`,
        'appendonly yes',
        'appendfsync always',
        'save ""',
        'maxmemory-policy noeviction',
        // One for each test that wants queues of its own.
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
  // Two answers of one line each; an error is one of them.
  const question = `AUTH ${password}\r\nPING\r\n`;
  const result = await askPort(port, question, (bytes) => /^.*\r\n.*\r\n$/.test(bytes.toString()));
  if ('reason' in result) return result.reason;
  const text = result.answer.toString();
  return text.includes('+PONG') ? 'ready' : text.trim();
}

async function isNewEnough(program: string, tools: Tools): Promise<boolean> {
  const said = await tools.run(title, program, ['--version'], '/');
  return Number(/v=(\d+)/.exec(said)?.[1] ?? 0) >= oldest;
}

/** `apt-get` gets package lists of its own, so that nothing of the system is read or changed but its list of sources. */
async function fromPackages(tools: Tools): Promise<Installation> {
  const folder = await fetchPinned({
    part: 'redis',
    pin: redisPin,
    cacheFolder: tools.cacheFolder,
    // A distribution takes the old version away when it has a newer one; `apt-get` checks signatures by itself.
    allowsUnpinned: true,
    async download(draft) {
      const apt = tools.need(title, ['apt-get'], install);
      tools.need(title, ['dpkg-deb'], install);
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
        await tools.run(title, tools.need(title, ['dpkg-deb'], install), ['-x', join('files', file), 'root'], draft);
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
