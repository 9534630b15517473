/** Runs, prompts and datasets as resources of the protocol, and the prompts of the hub as prompts. */
import {
  ErrorCode,
  type GetPromptResult,
  type ListPromptsResult,
  type ListResourcesResult,
  McpError,
  type ReadResourceResult,
  type ResourceTemplate,
} from '@modelcontextprotocol/sdk/types.js';
import { isRunlakeError, type RunlakeError } from '../../infra/errors/runlake-error.ts';
import { isJsonObject, type JsonObject } from '../../infra/json/json-value.ts';
import { endSlice } from '../../infra/timeouts/time-slices.ts';
import { isUuid } from '../../pipelines/ingest/run-event/uuid.ts';
import { listExamples, readDataset } from './datasets.ts';
import type { StoredRecord } from './find-named.ts';
import type { MainApi } from './main-api.ts';
import { cutStrings } from './pages.ts';
import { readArguments } from './parameters.ts';
import { getPromptByName, listRepos, readPrompt } from './prompts.ts';
import { getRun } from './runs.ts';
import type { Tool, ToolContext } from './tool.ts';

const mimeType = 'application/json';

export const resourceTemplates: readonly ResourceTemplate[] = [
  {
    name: 'run',
    title: 'Run',
    uriTemplate: 'runlake://runs/{run_id}',
    description: 'A run with all its fields, and an outline of the runs below it.',
    mimeType,
  },
  {
    name: 'prompt',
    title: 'Prompt',
    uriTemplate: 'runlake://prompts/{prompt_name}',
    description: 'The latest commit of a prompt: name, owner/name (with %2F), or name:commit.',
    mimeType,
  },
  {
    name: 'dataset',
    title: 'Dataset',
    uriTemplate: 'runlake://datasets/{dataset}',
    description: 'A dataset, by its id or name, with its first examples.',
    mimeType,
  },
];

const pageSize = 100;

/** Lists prompts, then datasets, page by page. Those that the key must not read are omitted. */
export async function listResources(context: ToolContext, cursor: string | undefined): Promise<ListResourcesResult> {
  const [, kind, rest] = /^(prompts|datasets):(.*)$/.exec(cursor ?? 'prompts:0') ?? [];
  const offset = readOffset(rest ?? '');
  if (kind === 'prompts') {
    const page = listRepos(context.api, { limit: pageSize, offset });
    const { repos } = await omitForbidden<Awaited<typeof page>>(page, { repos: [] });
    const resources = repos.map((repo) => describe('prompts', String(repo.repo_handle), repo));
    return { resources, nextCursor: repos.length < pageSize ? 'datasets:0' : `prompts:${offset + pageSize}` };
  }
  const datasets = (await omitForbidden(
    context.api.get('/datasets', { limit: pageSize, offset }),
    [],
  )) as StoredRecord[];
  const resources = datasets.map((dataset) => ({
    ...describe('datasets', String(dataset.id), dataset),
    name: String(dataset.name),
  }));
  return { resources, ...(datasets.length === pageSize && { nextCursor: `datasets:${offset + pageSize}` }) };
}

function describe(kind: string, name: string, { description }: StoredRecord) {
  const uri = `runlake://${kind}/${encodeURIComponent(name)}`;
  return { uri, name, mimeType, ...(typeof description === 'string' && { description: cutDescription(description) }) };
}

/** Descriptions and arguments are shortened in lists, because a page must not exceed the limit of answers. */
const maxListedCharacters = 10_000;
const cutDescription = (text: string) => cutStrings(text, maxListedCharacters) as string;

function readOffset(text: string | undefined): number {
  if (text === undefined) return 0;
  if (!/^\d{1,9}$/.test(text)) throw new McpError(ErrorCode.InvalidParams, 'Unknown cursor');
  return Number(text);
}

async function omitForbidden<T>(response: Promise<unknown>, none: T): Promise<T> {
  try {
    return (await response) as T;
  } catch (error) {
    if (isRunlakeError(error) && error.status === 403) return none;
    throw error;
  }
}

/** @throws McpError, also if there is no such resource. */
export async function readResource(context: ToolContext, uri: string): Promise<ReadResourceResult> {
  const [, kind, encoded = ''] = /^runlake:\/\/(\w+)\/([^/?#]+)$/.exec(uri) ?? [];
  const read = Object.hasOwn(readers, kind ?? '') ? readers[kind ?? ''] : undefined;
  const createNotFoundError = () => new McpError(resourceNotFound, `Resource ${uri.slice(0, 200)} not found`);
  if (read === undefined) throw createNotFoundError();
  try {
    const name = decodeURIComponent(encoded);
    // No name contains NUL, which the main API refuses.
    if (name.includes('\0')) throw createNotFoundError();
    const content = await read(context, name);
    return { contents: [{ uri, mimeType, text: JSON.stringify(content) }] };
  } catch (error) {
    if (error instanceof URIError || isUnusable(error)) throw createNotFoundError();
    throw error;
  }
}

/** Whether the name or the values from the client are invalid. */
const isUnusable = (error: unknown): error is RunlakeError =>
  isRunlakeError(error) && (error.status === 404 || error.code === 'BAD_REQUEST');

/** Source: Model Context Protocol, "Resources", error handling. */
const resourceNotFound = -32_002;

const readers: Readonly<Record<string, (context: ToolContext, name: string) => Promise<unknown>>> = {
  runs: (context, id) => runTool(getRun, { run_id: id }, context),
  prompts: (context, name) => runTool(getPromptByName, { prompt_name: name }, context),
  datasets: async (context, name) => {
    const which = isUuid(name) ? { dataset_id: name } : { dataset_name: name };
    const [dataset, examples] = await Promise.all([
      runTool(readDataset, which, context),
      runTool(listExamples, which, context),
    ]);
    return { ...dataset, ...examples };
  },
};

async function runTool(tool: Tool, values: StoredRecord, context: ToolContext): Promise<StoredRecord> {
  return (await tool.run(readArguments(tool.parameters, values), context)) as StoredRecord;
}

/** Loaded on first use, because templates are filled in by LangChain, which takes long to load. */
const loadTemplates = () => import('../../pipelines/prompts/render-prompt.ts');

/** Lists the prompts of the workspace, page by page. */
export async function listHubPrompts({ api }: ToolContext, cursor: string | undefined): Promise<ListPromptsResult> {
  const { listPromptVariables } = await loadTemplates();
  const offset = readOffset(cursor);
  const page = { limit: pageSize, offset, with_latest_manifest: true };
  const { repos } = await listRepos(api, page);
  const prompts: ListPromptsResult['prompts'] = [];
  for (const repo of repos) {
    let characters = 0;
    prompts.push({
      name: String(repo.repo_handle),
      // Some clients require a description.
      description: String(repo.description || `The prompt ${repo.repo_handle} of the workspace.`),
      arguments: listPromptVariables(readLatestManifest(repo)).filter((variable) => {
        characters += JSON.stringify(variable).length;
        return characters <= maxListedCharacters;
      }),
    });
    await endSlice();
  }
  return { prompts, ...(repos.length === pageSize && { nextCursor: String(offset + pageSize) }) };
}

function readLatestManifest({ latest_commit_manifest: commit }: StoredRecord): JsonObject {
  return isJsonObject(commit) && isJsonObject(commit.manifest) ? commit.manifest : {};
}

/**
 * Fills in a prompt. The protocol has no system messages: they become messages of the user.
 *
 * @throws McpError `InvalidParams` for an unknown name or a missing value.
 */
export async function getHubPrompt(
  api: MainApi,
  name: string,
  values: Readonly<Record<string, string>>,
): Promise<GetPromptResult> {
  const { renderPrompt } = await loadTemplates();
  try {
    const { manifest, repo } = await readPrompt(api, name);
    return {
      ...(typeof repo.description === 'string' && { description: repo.description }),
      messages: renderPrompt(manifest, values).map(({ role, text }) => ({
        role: role === 'assistant' ? 'assistant' : 'user',
        content: { type: 'text', text },
      })),
    };
  } catch (error) {
    if (isUnusable(error)) throw new McpError(ErrorCode.InvalidParams, error.message);
    throw error;
  }
}
