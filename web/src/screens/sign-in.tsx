import { useQuery } from '@tanstack/react-query';
import { getRouteApi, useNavigate, useRouter } from '@tanstack/react-router';
import { type FormEvent, useEffect, useRef, useState } from 'react';
import { readFrom } from '../api/client.ts';
import { isOwnPath, leaveForProvider, sessionQuery, useSessionChanges } from '../api/session.ts';
import { SubmitButton } from '../components/button.tsx';
import { Heading } from '../components/heading.tsx';
import { Problem } from '../components/states.tsx';
import { Brand } from '../shell.tsx';

const route = getRouteApi('/signin');

/** Messages for failed sign-ins through OpenID Connect, by error code. */
const refusals: ReadonlyMap<string, string> = new Map([
  ['OIDC_SIGN_IN_EXPIRED', 'The sign-in took too long. Sign in again within ten minutes, in the same browser.'],
  ['OIDC_EMAIL_MISSING', 'The identity provider does not confirm an email address for you. Ask its administrator.'],
  ['OAUTH_PROVIDER_UNAVAILABLE', 'The identity provider does not respond. Try again, or sign in with a key.'],
  ['SIGN_IN_LIMITED', 'Too many sign-ins from your address have failed. Try again in a minute.'],
  ['OIDC_ROLE_MISSING', 'The identity provider gives you no role in Runlake. Ask its administrator.'],
]);

/**
 * Exchanges an API key, or the one-time token in the fragment of the address, for a session. If OpenID Connect is
 * configured, it can redirect to the identity provider instead.
 */
export function SignIn() {
  const { to, error } = route.useSearch();
  const navigate = useNavigate();
  const router = useRouter();
  const session = useQuery(sessionQuery);
  const info = useQuery({
    queryKey: ['info'],
    ...readFrom('get', '/api/v1/info'),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const { signIn, signInOnce } = useSessionChanges();
  const [key, setKey] = useState('');
  const [problem, setProblem] = useState(error && (refusals.get(error) ?? `Sign-in failed (${error}). Try again.`));
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
    window.history.replaceState(null, '', window.location.pathname + window.location.search);
    void attempt(() => signInOnce(decodeURIComponent(token)));
  });

  const isSignedIn = Boolean(session.data);
  useEffect(() => {
    if (!isSignedIn) return;
    if (to !== undefined && isOwnPath(to)) router.history.replace(to);
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
        <Heading text="Sign in" />
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
        <Problem message={problem} />
        <SubmitButton disabled={isBusy || key.trim() === ''}>{isBusy ? 'Signing in …' : 'Sign in'}</SubmitButton>
        {info.data?.instance_flags.openid_connect === true && (
          <a className="button" href="/api/v1/session/oidc" onClick={() => leaveForProvider(to)}>
            Sign in with your organisation
          </a>
        )}
      </form>
    </main>
  );
}
