import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { create } from 'tar';
import { poll } from '../../../infra/timeouts/poll.ts';

const repository = fileURLToPath(new URL('../../..', import.meta.url));

/** Instead of an installation: the graphs of tests use the packages of the repository. */
export const linkPackages = `ln -s ${join(repository, 'node_modules')} node_modules`;

/** A graph `echo` that answers with `reply`, or with the value of an environment variable `$NAME`. It first fetches a URL. */
export const echoSource = (reply: string): Record<string, string> => ({
  'langgraph.json': JSON.stringify({ graphs: { echo: './echo.js:graph' }, env: '.env' }),
  'package.json': JSON.stringify({ name: 'echo', version: '1.0.0', type: 'module' }),
  'echo.js': `import { Annotation, StateGraph } from '@langchain/langgraph';
const reply = ${reply.startsWith('$') ? `process.env[${JSON.stringify(reply.slice(1))}]` : JSON.stringify(reply)};
export const graph = new StateGraph(Annotation.Root({ said: Annotation, reply: Annotation }))
  .addNode('answer', async ({ said }) => {
    if (said === 'slow') await new Promise((resolve) => setTimeout(resolve, 3_000));
    if (said.startsWith('http:')) await fetch(said);
    return { reply };
  })
  .addEdge('__start__', 'answer').compile();
`,
});

/** Packs files by path. */
export async function packFiles(files: Readonly<Record<string, string>>): Promise<Buffer> {
  const folder = mkdtempSync(join(tmpdir(), 'runlake-pack-'));
  try {
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(folder, path)), { recursive: true });
      writeFileSync(join(folder, path), text);
    }
    const chunks: Buffer[] = [];
    for await (const chunk of create({ cwd: folder, gzip: true, portable: true }, Object.keys(files))) {
      chunks.push(Buffer.from(chunk));
    }
    return Buffer.concat(chunks);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

// biome-ignore lint/suspicious/noExplicitAny: each operation has its own response type.
type Body = any;

export interface Answer {
  readonly status: number;
  readonly body: Body;
}

/** Calls the control plane of a Runlake process. */
export class DeploymentClient {
  readonly #url: string;
  readonly #key: string;

  constructor(url: string, key: string) {
    this.#url = url;
    this.#key = key;
  }

  async ask(method: string, path: string, body?: object): Promise<Answer> {
    const response = await fetch(`${this.#url}${path}`, {
      method,
      headers: { 'x-api-key': this.#key, ...(body && { 'content-type': 'application/json' }) },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: text === '' ? undefined : (JSON.parse(text) as Body) };
  }

  async #expect(status: number, method: string, path: string, body?: object): Promise<Body> {
    const answer = await this.ask(method, path, body);
    if (answer.status !== status) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  /** Creates a deployment without a source. */
  create(name: string, more: { readonly secrets?: object[]; readonly sourceConfig?: object } = {}): Promise<Body> {
    return this.#expect(201, 'POST', '/v2/deployments', {
      name,
      source: 'internal_source',
      source_config: { deployment_type: 'dev', install_command: linkPackages, ...more.sourceConfig },
      source_revision_config: {},
      secrets: more.secrets ?? [],
    });
  }

  /** Uploads a tarball. @returns its object path. */
  async upload(deploymentId: string, tarball: Buffer): Promise<string> {
    const { upload_url, object_path } = await this.#expect(200, 'POST', `/v2/deployments/${deploymentId}/upload-url`);
    const response = await fetch(upload_url, {
      method: 'PUT',
      headers: { 'content-type': 'application/gzip' },
      body: new Uint8Array(tarball),
    });
    if (!response.ok) throw new Error(`upload: ${response.status} ${await response.text()}`);
    return object_path;
  }

  /** Uploads files and creates a revision from them. @returns the deployment. */
  async push(deploymentId: string, files: Readonly<Record<string, string>>, more: object = {}): Promise<Body> {
    const path = await this.upload(deploymentId, await packFiles(files));
    return this.#expect(200, 'PATCH', `/v2/deployments/${deploymentId}`, {
      source_revision_config: { source_tarball_path: path, langgraph_config_path: 'langgraph.json' },
      ...more,
    });
  }

  /** Creates a deployment and its first revision. */
  async deploy(
    name: string,
    files: Readonly<Record<string, string>>,
    more: Parameters<DeploymentClient['create']>[1] = {},
  ) {
    const { id } = await this.create(name, more);
    return this.push(id, files);
  }

  /** Waits until a revision has a final status. @returns the revision. */
  async awaitEnd(deploymentId: string, revisionId: string, timeoutMs = 60_000): Promise<Body> {
    const path = `/v2/deployments/${deploymentId}/revisions/${revisionId}`;
    let last: Body;
    const hasEnded = async () => {
      last = await this.#expect(200, 'GET', path);
      return /^(?:DEPLOYED|SKIPPED|INTERRUPTED|.*_FAILED)$/.test(last.status);
    };
    if (await poll(hasEnded, { intervalMs: 100, timeoutMs })) return last;
    throw new Error(`revision did not end: ${JSON.stringify(last)}`);
  }

  /** Waits until a revision is DEPLOYED. */
  async awaitDeployed(deploymentId: string, revisionId: string): Promise<Body> {
    const revision = await this.awaitEnd(deploymentId, revisionId);
    if (revision.status === 'DEPLOYED') return revision;
    const { body } = await this.ask('GET', `/v2/deployments/${deploymentId}/revisions/${revisionId}/logs`);
    throw new Error(`revision ended as ${revision.status}: ${JSON.stringify({ revision, body }, null, 1)}`);
  }
}
