// Whether the browser has a network. It may lack one and still reach a server on the same machine, so this is a hint to
// try again at once, and never a reason not to try.

export const OFFLINE = "This browser is offline. The page goes on by itself once it is back.";

export const isOnline = () => navigator.onLine !== false;

/** Call a function whenever the browser loses its network or gets one. Return a function that ends this. */
export function onNetwork(call) {
  addEventListener("offline", call);
  addEventListener("online", call);
  return () => {
    removeEventListener("offline", call);
    removeEventListener("online", call);
  };
}
