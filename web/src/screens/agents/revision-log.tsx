import { useEffect, useRef, useState } from 'react';
import { fillPath, send } from '../../api/client.ts';
import { readEvents } from '../../api/event-stream.ts';
import { listOptions, Select } from '../../components/select.tsx';
import { Problem } from '../../components/states.tsx';
import { showInvisible } from '../../components/text.tsx';

interface Chunk {
  readonly sequence: number;
  readonly stage: string;
  readonly text: string;
}
const stages = { '': 'all', build: 'build', deploy: 'deploy', run: 'run' } as const;
/** Older chunks are dropped from the view; a chunk has at most 16 KiB. */
const maxChunks = 1_000;
const pollMs = 2_000;

/** The log of a revision, which grows while it is watched. */
export function RevisionLog({
  deploymentId,
  revisionId,
}: {
  readonly deploymentId: string;
  readonly revisionId: string;
}) {
  const { chunks, problem } = useLog(deploymentId, revisionId);
  const [stage, setStage] = useState<string>('');
  const shown = chunks.filter((chunk) => stage === '' || chunk.stage === stage);
  const view = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the view follows the end when lines arrive.
  useEffect(() => {
    if (view.current && isAtEnd.current) view.current.scrollTop = view.current.scrollHeight;
  }, [shown.length]);
  return (
    <section aria-label="Log of the revision" className="stack">
      <header className="row wrap">
        <h2>Log</h2>
        {problem === undefined && (
          <span className="badge live-badge" role="status">
            live
          </span>
        )}
        <span className="spacer" />
        <label className="row">
          Stage
          <Select value={stage} onChange={setStage} options={listOptions(stages)} />
        </label>
      </header>
      <Problem message={problem} />
      <pre
        ref={view}
        className="agents-log"
        tabIndex={0}
        role="region"
        aria-label="Lines of the log"
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
          isAtEnd.current = scrollHeight - scrollTop - clientHeight < 20;
        }}
      >
        {shown.length === 0 && <span className="muted">Nothing yet</span>}
        {shown.map(({ sequence, text }) => (
          <span key={sequence}>
            {showInvisible(text)}
            {text.endsWith('\n') ? '' : '\n'}
          </span>
        ))}
      </pre>
    </section>
  );
}

/**
 * Follows the log. The stream ends when the revision has its final status. Reading again, also after a broken
 * connection, continues after the last chunk that arrived.
 */
function useLog(deploymentId: string, revisionId: string) {
  const [chunks, setChunks] = useState<readonly Chunk[]>([]);
  const [problem, setProblem] = useState<string>();
  useEffect(() => {
    const abort = new AbortController();
    const path = fillPath(
      '/api/v2/deployments/{deployment_id}/revisions/{revision_id}/logs',
      { deployment_id: deploymentId, revision_id: revisionId },
      {},
    );
    let last: string | undefined;
    const read = async () => {
      const headers = { accept: 'text/event-stream', ...(last !== undefined && { 'last-event-id': last }) };
      const response = await send('get', path, { signal: abort.signal, headers });
      setProblem(undefined);
      for await (const { event, data, lastId } of readEvents(response)) {
        if (event !== 'log') continue;
        last = lastId;
        const chunk = JSON.parse(data) as Chunk;
        setChunks((former) => [...former, chunk].slice(-maxChunks));
      }
    };
    const follow = async () => {
      while (!abort.signal.aborted) {
        await read().catch((error: unknown) => {
          if (!abort.signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
        });
        await new Promise((resolve) => setTimeout(resolve, pollMs));
      }
    };
    void follow();
    return () => abort.abort();
  }, [deploymentId, revisionId]);
  return { chunks, problem };
}
