import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Embed } from './store-item.ts';

/** Package and class of each provider of LangChain. The packages are dependencies of the project, not of Runlake. */
const providers: Readonly<Record<string, readonly [string, string]>> = {
  openai: ['@langchain/openai', 'OpenAIEmbeddings'],
  cohere: ['@langchain/cohere', 'CohereEmbeddings'],
  mistralai: ['@langchain/mistralai', 'MistralAIEmbeddings'],
  ollama: ['@langchain/ollama', 'OllamaEmbeddings'],
  bedrock: ['@langchain/aws', 'BedrockEmbeddings'],
  'google-genai': ['@langchain/google-genai', 'GoogleGenerativeAIEmbeddings'],
};

/**
 * Loads the embedder that `store.index.embed` of a langgraph.json names: `provider:model`, or `./file.ts:name` for a
 * function of texts or an object with `embedDocuments`. Runs code of the project, so call it only in a worker process.
 *
 * @throws STORE_EMBEDDER_UNUSABLE if it cannot be loaded.
 */
export async function loadEmbedder(embed: string, folder: string): Promise<Embed> {
  try {
    const split = embed.lastIndexOf(':');
    const isPath = /^[./]/.test(embed);
    const [before, after] = split < 0 ? [embed, 'default'] : [embed.slice(0, split), embed.slice(split + 1)];
    return toEmbed(isPath ? await importExport(resolve(folder, before), after) : await createOfProvider(embed, folder));
  } catch (cause) {
    if (isRunlakeError(cause)) throw cause;
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw unusable(`'${embed}' cannot be loaded: ${reason}`, cause);
  }
}

async function importExport(path: string, name: string): Promise<unknown> {
  const module = (await import(pathToFileURL(path).href)) as Record<string, unknown>;
  if (module[name] === undefined) throw unusable(`${path} has no export '${name}'`);
  return module[name];
}

async function createOfProvider(embed: string, folder: string): Promise<unknown> {
  const colon = embed.indexOf(':');
  const provider = providers[embed.slice(0, colon)];
  if (colon < 0 || provider === undefined)
    throw unusable(
      `'${embed}' is neither a path nor one of ${Object.keys(providers).join(', ')} followed by a colon and a model`,
    );
  const [name, className] = provider;
  const path = createRequire(join(folder, 'langgraph.json')).resolve(name);
  const Class = (await importExport(path, className)) as new (options: { model: string }) => unknown;
  return new Class({ model: embed.slice(colon + 1) });
}

function toEmbed(found: unknown): Embed {
  if (typeof found === 'function') return async (texts) => (await found([...texts])) as number[][];
  const embeddings = found as { embedDocuments?: (texts: string[]) => Promise<number[][]> } | null;
  if (typeof embeddings?.embedDocuments !== 'function')
    throw unusable('the export that store.index.embed names is neither a function nor an object with embedDocuments');
  return (texts) => embeddings.embedDocuments!([...texts]);
}

function unusable(reason: string, cause?: unknown): RunlakeError {
  return runlakeError('STORE_EMBEDDER_UNUSABLE', { reason }, { cause });
}
