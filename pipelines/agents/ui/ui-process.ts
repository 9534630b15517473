/**
 * Entry point of the process that builds one UI, with the bundler that is installed in the project. The styles of a UI may
 * name plugins, which are project code.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { openParentPipe, watchParent } from '../workers/child/outbox.ts';
import { encodeFrame } from '../workers/frames.ts';

export interface UiTask {
  /** Folder of the langgraph.json. */
  readonly folder: string;
  readonly name: string;
  /** Path of the module, relative to the folder. */
  readonly path: string;
  /** Modules that the page of the client provides, in addition to React and the SDK. */
  readonly shared: readonly string[];
  readonly maxBytes: number;
}

export type UiProcessMessage =
  /** The body of the frame is the contents of the files, one after the other. */
  | { readonly kind: 'built'; readonly files: readonly { readonly name: string; readonly bytes: number }[] }
  | { readonly kind: 'failed'; readonly reason: string };

/** The package that the LangGraph command line builds UIs with. */
const bundlerName = '@langchain/langgraph-ui';

interface Bundler {
  build(options: {
    readonly cwd: string;
    readonly output: string;
    readonly defs: Readonly<Record<string, string>>;
    readonly config: { readonly shared: readonly string[] };
  }): Promise<void>;
}

watchParent();
const pipe = openParentPipe((task) => void buildUi(task as UiTask));

async function buildUi(task: UiTask): Promise<void> {
  const output = await mkdtemp(join(tmpdir(), 'runlake-ui-'));
  try {
    const files = await bundle(task, output);
    const bytes = files.reduce((sum, { content }) => sum + content.byteLength, 0);
    if (bytes > task.maxBytes) throw createError(task, `its files have ${bytes} bytes (limit: ${task.maxBytes})`);
    await send(
      { kind: 'built', files: files.map(({ name, content }) => ({ name, bytes: content.byteLength })) },
      files.map(({ content }) => content),
    );
  } catch (error) {
    const reason = isRunlakeError(error) ? String(error.parameters.reason) : String((error as Error)?.message ?? error);
    await send({ kind: 'failed', reason });
  } finally {
    await rm(output, { recursive: true, force: true });
  }
  process.exit(0);
}

async function bundle(task: UiTask, output: string) {
  const { folder, name, path, shared } = task;
  const { build } = await importBundler(task);
  await build({ cwd: folder, output, defs: { [name]: path }, config: { shared } });
  const built = JSON.parse(await readFile(join(output, 'schemas.json'), 'utf8')) as Record<
    string,
    { assets: string[] }
  >;
  const names = built[name]?.assets ?? [];
  return Promise.all(
    names.map(async (file) => ({ name: file, content: await readFile(join(output, 'public', name, file)) })),
  );
}

async function importBundler(task: UiTask): Promise<Bundler> {
  let location: string;
  try {
    location = createRequire(join(task.folder, 'langgraph.json')).resolve(bundlerName);
  } catch {
    throw createError(task, `the package '${bundlerName}' is not installed in its project: install it there`);
  }
  return (await import(pathToFileURL(location).href)) as Bundler;
}

function createError({ name }: UiTask, reason: string) {
  return runlakeError('UI_UNUSABLE', { ui: name, reason });
}

function send(message: UiProcessMessage, body: readonly Uint8Array[] = []): Promise<void> {
  return new Promise((resolve) => pipe.write(encodeFrame(message, body), resolve));
}
