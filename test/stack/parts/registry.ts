import { join } from 'node:path';
import { fetchPinned } from '../fetch-pinned.ts';
import { findJava } from '../find-java.ts';
import { fastStartOptions } from '../java-options.ts';
import { launchProgram } from '../launch-program.ts';
import type { Part } from '../part.ts';
import { registryPin } from '../pins.ts';
import { downloadWithMaven } from '../run-maven.ts';

const title = `Schema registry Apicurio ${registryPin.version}`;
const artifact = `io.apicurio:apicurio-registry-app:${registryPin.version}:tar.gz:all`;
const url = (port: number | undefined) => `http://127.0.0.1:${port}/apis/ccompat/v7`;

/**
 * Apicurio's registry with Confluent's API. Schemas survive a restart of the registry as long as the stack is running.
 */
export const registry: Part = {
  name: 'registry',
  title,
  portCount: 1,
  async install(tools) {
    const java = await findJava(title, tools);
    const folder = await fetchPinned({
      part: 'registry',
      pin: registryPin,
      cacheFolder: tools.cacheFolder,
      download: (draft) => downloadWithMaven(title, tools, draft, { goal: 'copy', args: [`-Dartifact=${artifact}`] }),
      async unpack(draft) {
        const tar = tools.requireProgram(title, ['tar'], 'tar');
        const [archive = ''] = Object.keys(registryPin.files);
        await tools.run(title, tar, ['-xzf', join('files', archive)], draft);
      },
    });
    return { java, jar: join(folder, `apicurio-registry-app-${registryPin.version}-runner.jar`) };
  },
  launch({ folder, ports, installation, log }) {
    const workFolder = join(folder, 'registry');
    return launchProgram({
      title,
      folder,
      workFolder,
      program: installation.java ?? '',
      args: ['-Xmx256m', ...fastStartOptions, '-jar', installation.jar ?? ''],
      environment: {
        QUARKUS_HTTP_HOST: '127.0.0.1',
        QUARKUS_HTTP_PORT: String(ports[0]),
        QUARKUS_LOG_LEVEL: 'WARN',
        QUARKUS_HTTP_ACCESS_LOG_ENABLED: 'false',
        APICURIO_DATASOURCE_URL: `jdbc:h2:file:${join(workFolder, 'schemas')}`,
      },
      ask: () => checkRegistry(url(ports[0])),
      explains: /ERROR|Exception/,
      log,
    });
  },
  values: ({ ports }) => ({ url: url(ports[0]) }),
  check: (values) => checkRegistry(values.url ?? ''),
  exports: (values) => ({ RUNLAKE_SCHEMA_REGISTRY_URL: values.url ?? '' }),
};

async function checkRegistry(address: string): Promise<string> {
  try {
    const answer = await fetch(`${address}/subjects`, { signal: AbortSignal.timeout(5_000) });
    const subjects: unknown = await answer.json();
    return answer.ok && Array.isArray(subjects) ? 'ready' : `the response was ${answer.status}`;
  } catch (error) {
    return error instanceof Error ? String(error.cause ?? error.message) : String(error);
  }
}
