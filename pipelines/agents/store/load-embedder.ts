import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { fault, isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Embed } from './store-item.ts';

/** Package and class behind the name of a provider, of those that LangChain keeps. They are the project's own dependencies. */
const providers: Readonly<Record<string, readonly [string, string]>> = {
  openai: ['@langchain/openai', 'OpenAIEmbeddings'],
  cohere: ['@langchain/cohere', 'CohereEmbeddings'],
  mistralai: ['@langchain/mistralai', 'MistralAIEmbeddings'],
  ollama: ['@langchain/ollama', 'OllamaEmbeddings'],
  bedrock: ['@langchain/aws', 'BedrockEmbeddings'],
  'google-genai': ['@langchain/google-genai', 'GoogleGenerativeAIEmbeddings'],
};

/**
 * Loads what `store.index.embed` of a langgraph.json names: `./file.ts:name`, a function of texts or an object with
 * `embedDocuments`, or `provider:model`. Runs code of the project, so only in a process that runs graph code.
 *
 * @throws STORE_EMBEDDER_UNUSABLE
 */
export async function loadEmbedder(embed: string, folder: string): Promise<Embed> {
  try {
    const split = embed.lastIndexOf(':');
    const isPath = /^[./]/.test(embed);
    const [before, after] = split < 0 ? [embed, 'default'] : [embed.slice(0, split), embed.slice(split + 1)];
    return embedOf(isPath ? await exportOf(resolve(folder, before), after) : await providersOwn(embed, folder));
  } catch (cause) {
    if (isRunlakeError(cause)) throw cause;
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw unusable(`'${embed}' cannot be loaded: ${reason}`, cause);
  }
}

async function exportOf(path: string, name: string): Promise<unknown> {
  const module = (await import(pathToFileURL(path).href)) as Record<string, unknown>;
  if (module[name] === undefined) throw unusable(`${path} has no export '${name}'`);
  return module[name];
}

async function providersOwn(embed: string, folder: string): Promise<unknown> {
  const colon = embed.indexOf(':');
  const provider = providers[embed.slice(0, colon)];
  if (colon < 0 || provider === undefined)
    throw unusable(
      `'${embed}' is neither a path nor one of ${Object.keys(providers).join(', ')} with a model after a colon`,
    );
  const [name, className] = provider;
  const path = createRequire(join(folder, 'langgraph.json')).resolve(name);
  const Class = (await exportOf(path, className)) as new (options: { model: string }) => unknown;
  return new Class({ model: embed.slice(colon + 1) });
}

function embedOf(found: unknown): Embed {
  if (typeof found === 'function') return async (texts) => (await found([...texts])) as number[][];
  const embeddings = found as { embedDocuments?: (texts: string[]) => Promise<number[][]> } | null;
  if (typeof embeddings?.embedDocuments !== 'function')
    throw unusable('what store.index.embed names is neither a function nor an object with embedDocuments');
  return (texts) => embeddings.embedDocuments!([...texts]);
}

function unusable(reason: string, cause?: unknown): RunlakeError {
  return fault('STORE_EMBEDDER_UNUSABLE', { reason }, { cause });
}
