/** The server of the Model Context Protocol with its tools. It is the same over HTTP and standard input. */
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import {
  CallToolRequestSchema,
  ErrorCode,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListResourcesRequestSchema,
  ListResourceTemplatesRequestSchema,
  ListToolsRequestSchema,
  McpError,
  ReadResourceRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import type { Config } from '../../infra/config/settings.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { handleMcp, type McpExtra, mcpServerOptions, setMcpHandlers, withMcpErrors } from '../server/mcp-http.ts';
import { releaseVersion } from '../server/release.ts';
import { getBillingUsage, listExports, queryUsage } from './billing.ts';
import { CallSlots, callTool, requireAnswerSize, runWithinLimits } from './call-tool.ts';
import type { ToolCaller } from './caller.ts';
import { listDatasets, listExamples, readDataset, readExample } from './datasets.ts';
import { createDataset, pushPrompt, runExperiment, updateExamples } from './documentation.ts';
import { openMainApi } from './main-api.ts';
import { getProjectStats, listExperiments, listProjects } from './projects.ts';
import { getPromptByName, listPrompts } from './prompts.ts';
import { getHubPrompt, listHubPrompts, listResources, readResource, resourceTemplates } from './resources.ts';
import { fetchRuns, getRun } from './runs.ts';
import { getThreadHistory } from './threads.ts';
import { listTool, type Tool, type ToolContext } from './tool.ts';

/** Every tool: those of the original tool server, and then those that only Runlake has. */
export const tools: readonly Tool[] = [
  getThreadHistory,
  listPrompts,
  getPromptByName,
  pushPrompt,
  fetchRuns,
  listProjects,
  listDatasets,
  listExamples,
  readDataset,
  readExample,
  createDataset,
  updateExamples,
  listExperiments,
  runExperiment,
  getBillingUsage,
  getRun,
  getProjectStats,
  listExports,
  queryUsage,
];

const toolsByName: ReadonlyMap<string, Tool> = new Map(tools.map((tool) => [tool.name, tool]));

const instructions =
  'Runlake stores the traces, prompts, datasets and experiments of LLM applications. Find projects with list_projects, read traces ' +
  'with fetch_runs and get_run, conversations with get_thread_history, evaluations with list_experiments, usage with ' +
  'get_billing_usage and query_usage. Times are UTC.';

export interface ToolServerDeps {
  readonly config: Config;
  readonly logger: Logger;
}

/** Returns a function that creates servers, one for each session; all share the limits of keys. */
export function createToolServers({ config, logger }: ToolServerDeps): (fixed?: ToolCaller) => Server {
  const limits = {
    timeoutMs: config.toolsCallTimeoutMs,
    maxAnswerBytes: config.toolsMaxAnswerBytes,
    callsPerKey: config.toolsCallsPerKey,
    waitingPerKey: config.toolsWaitingPerKey,
  };
  const slots = new CallSlots(limits);
  const { toolsMaxReadBytes: maxReadBytes } = config;
  const openContext = (caller: ToolCaller, signal: AbortSignal): ToolContext => ({
    api: openMainApi(caller, { maxReadBytes, signal }),
    endpoint: caller.endpoint,
  });
  const listed = tools.map(listTool);
  return (fixed) => {
    const server = new Server(
      { name: 'runlake', title: 'Runlake', version: releaseVersion },
      { ...mcpServerOptions, capabilities: { tools: {}, resources: {}, prompts: {} }, instructions },
    );
    const findCaller = ({ authInfo }: McpExtra) => fixed ?? (authInfo?.extra as unknown as ToolCaller);
    /** Handles a request that is not a tool call, within the same limits. */
    const answer = <Result>(extra: McpExtra, work: (context: ToolContext) => Promise<Result>): Promise<Result> => {
      const caller = findCaller(extra);
      const request = { keyId: caller.keyId, signal: extra.signal };
      const openAndWork = async (signal: AbortSignal) =>
        requireAnswerSize(await work(openContext(caller, signal)), limits);
      return withMcpErrors(logger, runWithinLimits(request, limits, slots, openAndWork));
    };
    setMcpHandlers(server, {
      'tools/list': handleMcp(ListToolsRequestSchema, () => ({ tools: listed })),
      'tools/call': handleMcp(CallToolRequestSchema, ({ name, arguments: values = {} }, extra) => {
        const tool = toolsByName.get(name);
        if (tool === undefined) throw new McpError(ErrorCode.InvalidParams, `Unknown tool: ${name.slice(0, 100)}`);
        const caller = findCaller(extra);
        const open = (signal: AbortSignal) => openContext(caller, signal);
        const call = { tool, values, keyId: caller.keyId, signal: extra.signal, openContext: open, logger };
        return callTool(call, limits, slots);
      }),
      'resources/templates/list': handleMcp(ListResourceTemplatesRequestSchema, () => ({
        resourceTemplates: [...resourceTemplates],
      })),
      'resources/list': handleMcp(ListResourcesRequestSchema, (params, extra) =>
        answer(extra, (context) => listResources(context, params?.cursor)),
      ),
      'resources/read': handleMcp(ReadResourceRequestSchema, ({ uri }, extra) =>
        answer(extra, (context) => readResource(context, uri)),
      ),
      'prompts/list': handleMcp(ListPromptsRequestSchema, (params, extra) =>
        answer(extra, (context) => listHubPrompts(context, params?.cursor)),
      ),
      'prompts/get': handleMcp(GetPromptRequestSchema, ({ name, arguments: values = {} }, extra) =>
        answer(extra, ({ api }) => getHubPrompt(api, name, values)),
      ),
    });
    return server;
  };
}
