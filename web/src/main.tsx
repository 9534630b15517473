import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { ApiError, onSessionEnd, setCsrfToken } from './api/client.ts';
import { forgetData, onOtherTabChange, returnFromProvider, sessionQuery, shareWorkspace } from './api/session.ts';
import { createAppRouter } from './router.tsx';
import './styles/tokens.css';
import './styles/base.css';
import './styles/controls.css';
import './styles/shell.css';
import { applyTheme } from './theme.tsx';

applyTheme();
acceptLanguage();
returnFromProvider();
// The second click of a double click would send a form again before the answer to the first one disables the button.
document.addEventListener(
  'click',
  (event) => {
    if (event.detail < 2 || !(event.target instanceof Element && event.target.closest('button[type="submit"]'))) return;
    event.preventDefault();
    event.stopPropagation();
  },
  true,
);

// Before the viewer opens a link in another tab.
for (const event of ['pointerdown', 'keydown']) document.addEventListener(event, shareWorkspace, true);

/** Sets a valid language if the browser has none: Chromium has `en-US@posix` if LANG is C, with which uPlot does not load. */
function acceptLanguage(): void {
  try {
    Intl.getCanonicalLocales(navigator.language);
  } catch {
    Object.defineProperty(navigator, 'language', { value: 'en' });
  }
}

/** Retries a failed request twice, unless the API refused it: it would refuse it again. */
const retry = (failures: number, error: unknown) =>
  failures < 2 && !(error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429);

const client = new QueryClient({
  defaultOptions: { queries: { retry, staleTime: 10_000, retryDelay: (failures) => 500 * 2 ** failures } },
});
const router = createAppRouter(client);
onSessionEnd(() => {
  setCsrfToken(undefined);
  client.setQueryData(sessionQuery.queryKey, null);
  // Redirects to the sign-in screen, which leads back to this address.
  void router.invalidate();
});
onOtherTabChange(async () => {
  const session = await client.fetchQuery({ ...sessionQuery, staleTime: 0 });
  if (session === null) setCsrfToken(undefined);
  forgetData(client);
  // Reads the data of the new session, or redirects to the sign-in screen.
  await router.invalidate();
  await client.invalidateQueries();
});

const root = document.getElementById('root');
if (root)
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={client}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  );
