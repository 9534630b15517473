import { useQuery } from '@tanstack/react-query';
import { getRouteApi, useNavigate } from '@tanstack/react-router';
import { useMemo } from 'react';
import { readFrom } from '../../api/client.ts';
import { SharedPage } from '../../components/shared-page.tsx';
import { NoData } from '../../components/states.tsx';
import { TraceView } from './trace.tsx';
import { createSharedSource } from './trace-source.ts';

const route = getRouteApi('/public/$shareToken/r');

/** The trace of a public link, which needs no session. */
export function SharedTrace() {
  const { shareToken } = route.useParams();
  const { tab, run } = route.useSearch();
  const navigate = useNavigate({ from: '/public/$shareToken/r' });
  const source = useMemo(() => createSharedSource(shareToken), [shareToken]);
  const root = useQuery({
    queryKey: ['shared-root', shareToken],
    ...readFrom('get', '/api/v1/public/{share_token}/run', { path: { share_token: shareToken } }),
  });
  return (
    <SharedPage label="Shared trace">
      {root.data ? (
        <TraceView
          source={source}
          runId={run ?? root.data.id}
          tab={tab}
          onSelect={(id) => void navigate({ search: (before) => ({ ...before, run: id }), replace: true })}
          onTab={(next) => void navigate({ search: (before) => ({ ...before, tab: next }), replace: true })}
        />
      ) : (
        <NoData query={root} isPage />
      )}
    </SharedPage>
  );
}
