import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { readCallMessages, readThreadMessages } from '../../pipelines/runs/run-messages.ts';
import { compareTexts, findProjectId } from './find-named.ts';
import { buildPage } from './pages.ts';
import { text } from './parameters.ts';
import { pageNumber, pageOutput, pageParameters, queryRuns } from './runs.ts';
import { defineTool } from './tool.ts';

/** Maximum number of runs whose messages are in a history. For a longer thread, these are the newest runs. */
const maxRuns = 1_000;

export const getThreadHistory = defineTool({
  name: 'get_thread_history',
  title: 'Get the history of a thread',
  description:
    'Get the messages of one conversation (thread), oldest first, in pages by number of characters. The messages are those of the ' +
    'model calls of the thread: for each call, its whole input, then its answer, so later calls repeat earlier messages. If the thread ' +
    'has no model calls, they are those of the root runs of its traces, each once. Start with page_number 1 and read up to total_pages. Long ' +
    'texts are cut to preview_chars; pass a larger value to read them.',
  parameters: {
    thread_id: text({
      description:
        'Id of the thread: the value of thread_id, session_id or conversation_id in the metadata of its runs.',
    }).required(),
    project_name: text({ description: 'Name or id of the project of the thread.' }).required(),
    page_number: pageNumber.required(),
    ...pageParameters,
  },
  failurePrefix: 'Error fetching thread history: ',
  output: pageOutput('result', 'Messages; most have `role` and `content`.'),
  run: async (values, { api }) => {
    const { thread_id: threadId, project_name: project } = values;
    const thread = {
      session: [await findProjectId(api, project)],
      filter: `and(in(metadata_key, ["session_id","conversation_id","thread_id"]), eq(metadata_value, ${JSON.stringify(threadId)}))`,
      select: ['inputs', 'outputs', 'start_time'],
      order: 'desc',
    };
    const calls = await queryRuns(api, { ...thread, run_type: 'llm' }, maxRuns);
    const hasCalls = calls.runs.length > 0;
    const { runs: found, hasMore } = hasCalls ? calls : await queryRuns(api, { ...thread, is_root: true }, maxRuns);
    if (found.length === 0)
      throw runlakeError('TOOL_FOUND_NOTHING', {
        reason: `No runs found for thread ${threadId} in project ${project}`,
      });
    const oldestFirst = found.reverse().sort((a, b) => compareTexts(String(a.start_time), String(b.start_time)));
    const turns = oldestFirst.map(({ inputs, outputs }) => ({ inputs, outputs }));
    const messages = await (hasCalls ? readCallMessages(turns) : readThreadMessages(turns));
    if (messages.length === 0)
      throw runlakeError('TOOL_FOUND_NOTHING', { reason: `No messages found in the runs for thread ${threadId}` });
    const page = buildPage('result', messages, {
      pageNumber: values.page_number,
      maxCharsPerPage: values.max_chars_per_page,
      previewChars: values.preview_chars,
    });
    return {
      ...page,
      ...(hasMore && {
        note: `The history is limited to the newest ${found.length} runs of the thread.`,
      }),
    };
  },
});
