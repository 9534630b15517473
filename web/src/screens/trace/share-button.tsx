import { call } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { ShareMenu } from '../../components/share-menu.tsx';

/** A menu that creates and removes the public link of the trace of a run. */
export function ShareButton({ runId }: { readonly runId: string }) {
  const path = { run_id: runId };
  if (!usePermission('runs:share')) return null;
  return (
    <ShareMenu
      what="trace"
      queryKey={['share', runId]}
      readToken={async (signal) =>
        (await call('get', '/api/v1/runs/{run_id}/share', { path, signal }))?.share_token ?? undefined
      }
      share={() => call('put', '/api/v1/runs/{run_id}/share', { path })}
      unshare={() => call('delete', '/api/v1/runs/{run_id}/share', { path })}
      page="r"
    />
  );
}
