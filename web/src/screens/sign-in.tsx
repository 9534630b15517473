import { useQuery } from '@tanstack/react-query';
import { getRouteApi, useNavigate, useRouter } from '@tanstack/react-router';
import { type FormEvent, useEffect, useRef, useState } from 'react';
import { sessionQuery, useSessionChanges } from '../api/session.ts';
import { Brand } from '../shell.tsx';

const route = getRouteApi('/signin');

/** Exchanges an API key, or the one-time token in the fragment of the address, for a session. */
export function SignIn() {
  const { to } = route.useSearch();
  const navigate = useNavigate();
  const router = useRouter();
  const session = useQuery(sessionQuery);
  const { signIn, signInOnce } = useSessionChanges();
  const [key, setKey] = useState('');
  const [problem, setProblem] = useState<string>();
  const [isBusy, setBusy] = useState(false);
  const isSent = useRef(false);

  const attempt = async (begin: () => Promise<void>) => {
    setBusy(true);
    setProblem(undefined);
    try {
      await begin();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  };

  useEffect(() => {
    const token = /^#once=(.+)$/.exec(window.location.hash)?.[1];
    if (token === undefined || isSent.current) return;
    isSent.current = true;
    // The token is valid once; it must not stay in the history of the browser.
    window.history.replaceState(null, '', window.location.pathname);
    void attempt(() => signInOnce(decodeURIComponent(token)));
  });

  const isSignedIn = Boolean(session.data);
  useEffect(() => {
    if (!isSignedIn) return;
    // Only paths of this application: `//host` would be another origin.
    if (to !== undefined && /^\/(?![/\\])/.test(to)) router.history.replace(to);
    else void navigate({ to: '/', replace: true });
  }, [isSignedIn, to, navigate, router]);

  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (key.trim() !== '') void attempt(() => signIn(key.trim()));
  };
  return (
    <main className="sign-in">
      <form onSubmit={submit}>
        <div className="brand">
          <Brand />
        </div>
        <h1>Sign in</h1>
        {to !== undefined && <p className="muted">This page needs a session. Sign in to continue.</p>}
        <label className="field">
          API key
          <input
            className="input"
            type="password"
            name="api-key"
            autoComplete="off"
            value={key}
            aria-describedby="key-note"
            aria-invalid={problem !== undefined}
            onChange={(event) => setKey(event.target.value)}
          />
        </label>
        <p className="muted" id="key-note">
          The first start of Runlake prints an admin key. The browser keeps a session, not the key.
        </p>
        {problem && (
          <p className="error-text" role="alert">
            {problem}
          </p>
        )}
        <button type="submit" className="button primary" disabled={isBusy || key.trim() === ''}>
          {isBusy ? 'Signing in …' : 'Sign in'}
        </button>
      </form>
    </main>
  );
}
