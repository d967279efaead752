//! Goal: credentials that are given for others are asked for as the files say, held until they end, and read within bounds.
//! Method: as in `tests.rs`; servers that never end their answer, or are away.
//! Not covered: AWS's and Google's own services.

use super::*;

/// The AWS files of a test's own, in a directory that lives as long as the value.
fn aws_files(config: &str, credentials: &str) -> (tempfile::TempDir, [(String, String); 2]) {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let files = [
        ("AWS_CONFIG_FILE".to_owned(), write("config", config)),
        (
            "AWS_SHARED_CREDENTIALS_FILE".to_owned(),
            write("credentials", credentials),
        ),
    ];
    (dir, files)
}

/// The environment that names these files, with more of it.
fn with_files<'a>(
    files: &'a [(String, String); 2],
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    let files = files.iter().map(|(n, v)| (n.as_str(), v.as_str()));
    files.chain(more.iter().copied()).collect()
}

fn role_answer(key: &str, until: &str) -> Answer {
    let text = format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><Credentials>\
         <AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
         <SessionToken>given-token</SessionToken><Expiration>{until}</Expiration></Credentials>\
         <AssumedRoleUser><Arn>a</Arn></AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>"
    );
    (200, Vec::new(), text)
}

#[test]
fn a_profile_s_role_is_given_for_another_profile_s_keys_and_again_before_it_ends() {
    let config = "[profile night]\nrole_arn = arn:aws:iam::1:role/backup\nsource_profile = base\nexternal_id = x7\n";
    let keys = "[base]\naws_access_key_id = AKBASE\naws_secret_access_key = verysecret\n";
    let (_dir, files) = aws_files(config, keys);
    let variables = with_files(
        &files,
        &[("AWS_PROFILE", "night"), ("AWS_REGION", "eu-west-1")],
    );
    let asked = each_place(&variables, |_, key, until| (true, role_answer(key, until)));
    assert_eq!(asked.len(), 2);
    assert_eq!(
        asked[0].header("x-meant"),
        "https://sts.eu-west-1.amazonaws.com"
    );
    assert!(asked[0].line.starts_with("POST / "), "{}", asked[0].line);
    let signed = asked[0].header("authorization");
    assert!(
        signed.contains("Credential=AKBASE/") && signed.contains("/eu-west-1/sts/"),
        "{signed}"
    );
    for word in [
        "Action=AssumeRole",
        "role%2Fbackup",
        "ExternalId=x7",
        "RoleSessionName=longshore",
    ] {
        assert!(asked[0].body.contains(word), "{}", asked[0].body);
    }
    assert!(!asked[0].body.contains("verysecret"));
}

#[test]
fn a_role_of_a_role_and_one_of_the_environment_s_keys_are_given() {
    let config = "[profile last]\nrole_arn = arn:last\nsource_profile = first\n\
        [profile first]\nrole_arn = arn:first\ncredential_source = Environment\n";
    let (_dir, files) = aws_files(config, "");
    let variables = with_files(
        &files,
        &[
            ("AWS_PROFILE", "last"),
            ("AWS_ACCESS_KEY_ID", "AKENV"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
        ],
    );
    let (asked, keys) = with_place(
        &variables,
        |_, key, until| (true, role_answer(key, until)),
        false,
    );
    assert_eq!(asked.len(), 2);
    assert!(asked[0].body.contains("arn%3Afirst") && asked[1].body.contains("arn%3Alast"));
    assert!(
        asked[0]
            .header("authorization")
            .contains("Credential=AKENV/")
    );
    assert!(asked[1].header("authorization").contains("Credential=AK0/"));
    assert_eq!(asked[1].header("x-amz-security-token"), "given-token");
    assert_eq!(keys, ["AK1", "AK1"]);
}

#[test]
fn a_web_identity_in_a_profile_is_used_as_one_in_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "web-token").unwrap();
    let config = format!(
        "[profile web]\nrole_arn = arn:w\nweb_identity_token_file = {}\n",
        token.display()
    );
    let (_dir, files) = aws_files(&config, "");
    let variables = with_files(&files, &[("AWS_PROFILE", "web")]);
    let answer = |_: &Asked, key: &str, until: &str| {
        let text = role_answer(key, until)
            .2
            .replace("AssumeRoleRe", "AssumeRoleWithWebIdentityRe");
        (true, (200, Vec::new(), text))
    };
    let (asked, _) = with_place(&variables, answer, false);
    assert!(
        asked[0].line.contains("WebIdentityToken=web-token"),
        "{}",
        asked[0].line
    );
}

#[test]
fn a_role_that_is_refused_says_why_and_not_what_was_sent() {
    let config = "[profile night]\nrole_arn = arn:r\nsource_profile = base\n";
    let keys = "[base]\naws_access_key_id = AKBASE\naws_secret_access_key = verysecret\n";
    let (_dir, files) = aws_files(config, keys);
    let sts = Local::start(|_| {
        let text = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized</Message></Error></ErrorResponse>";
        (403, Vec::new(), text.to_owned())
    });
    let all = with_files(
        &files,
        &[
            ("AWS_PROFILE", "night"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
            ("LONGSHORE_ALLOW_HTTP", "1"),
        ],
    );
    let bent = Bent {
        direct: direct(),
        to: sts.address,
    };
    let bucket = Bucket::connect("abc", settings(&all), || bent.clone()).unwrap();
    let error = looked_at(&bucket).unwrap_err().to_string();
    assert!(
        error.contains("arn:r") && error.contains("AccessDenied: not authorized"),
        "{error}"
    );
    assert!(!error.contains("verysecret"), "{error}");
    assert!(sts.asked().len() <= 3);
}

/// The file of an external account, with more members.
fn external_account(dir: &std::path::Path, more: serde_json::Value) -> String {
    let token = dir.join("token");
    std::fs::write(&token, "their-token\n").unwrap();
    let mut file = serde_json::json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/pool",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "credential_source": { "file": token },
    });
    let members = more.as_object().unwrap().clone();
    file.as_object_mut().unwrap().extend(members);
    let path = dir.join("account.json");
    std::fs::write(&path, file.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn another_service_s_token_is_exchanged_for_google_s_and_again_before_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let file = external_account(dir.path(), serde_json::json!({}));
    let asked = each_token(Scheme::Google, &[("GOOGLE_APPLICATION_CREDENTIALS", &file)]);
    assert_eq!(asked.header("x-meant"), "https://sts.googleapis.com");
    assert!(asked.line.starts_with("POST /v1/token "), "{}", asked.line);
    for word in [
        "subject_token=their-token&",
        "token-exchange",
        "audience=%2F%2Fiam.googleapis.com%2Fpool",
    ] {
        assert!(format!("{}&", asked.body).contains(word), "{}", asked.body);
    }
}

#[test]
fn a_service_account_is_impersonated_with_the_token_that_was_exchanged() {
    let dir = tempfile::tempdir().unwrap();
    let giving = Local::start(|asked| {
        let text = match asked.line.split(' ').nth(1) {
            Some("/their/token") => r#"{"value":"from-an-address"}"#.to_owned(),
            Some("/v1/token") => r#"{"access_token":"first","expires_in":3600}"#.to_owned(),
            _ => r#"{"accessToken":"second","expireTime":"2099-01-02T03:04:05Z"}"#.to_owned(),
        };
        (200, Vec::new(), text)
    });
    let url = format!("{}/their/token", giving.url());
    let file = external_account(
        dir.path(),
        serde_json::json!({
            "service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/b:generateAccessToken",
            "service_account_impersonation": { "token_lifetime_seconds": 900 },
            "credential_source": {
                "url": url, "headers": { "x-why": "because" },
                "format": { "type": "json", "subject_token_field_name": "value" },
            },
        }),
    );
    let store = Local::start(|_| object());
    let at = store.url();
    let all = [
        ("GOOGLE_BASE_URL", at.as_str()),
        ("GOOGLE_APPLICATION_CREDENTIALS", &file),
        ("LONGSHORE_ALLOW_HTTP", "1"),
    ];
    let bent = Bent {
        direct: direct(),
        to: giving.address,
    };
    let bucket =
        Bucket::connect("abc", settings_of(Scheme::Google, &all), || bent.clone()).unwrap();
    assert!(looked_at(&bucket).unwrap().is_some());
    assert_eq!(store.asked()[0].header("authorization"), "Bearer second");
    let asked = giving.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0].header("x-why"), "because");
    assert!(asked[1].body.contains("subject_token=from-an-address"));
    assert_eq!(asked[2].header("authorization"), "Bearer first");
    assert!(asked[2].body.contains("\"900s\""), "{}", asked[2].body);
}

/// Goal: a metadata service on this machine or its link, which speaks plain http by nature, gives a token although nothing
/// allows plain http; Google's services are asked over https all the same.
#[test]
fn a_token_s_address_on_this_machine_or_its_link_needs_no_leave_for_plain_http() {
    let server = Local::start(|asked| match asked.line.split(' ').nth(1) {
        Some("/their/token?a=b") => (200, Vec::new(), "their-token\n".to_owned()),
        Some("/v1/token") => {
            let text = r#"{"access_token":"first","expires_in":3600}"#.to_owned();
            (200, Vec::new(), text)
        }
        _ => object(),
    });
    let bent = Bent {
        direct: direct(),
        to: server.address,
    };
    let dir = tempfile::tempdir().unwrap();
    let with = |url: String| {
        let more = serde_json::json!({ "credential_source": { "url": url } });
        let file = external_account(dir.path(), more);
        let all = [("GOOGLE_APPLICATION_CREDENTIALS", file.as_str())];
        let bucket =
            Bucket::connect("abc", settings_of(Scheme::Google, &all), || bent.clone()).unwrap();
        looked_at(&bucket)
    };
    for near in [server.url(), "http://169.254.169.254".to_owned()] {
        let looked = with(format!("{near}/their/token?a=b"));
        assert_eq!(looked.unwrap().unwrap().len_bytes, 1, "{near}");
    }
    let asked = server.asked();
    let meant = |n: usize| asked[n].header("x-meant");
    assert_eq!(asked.len(), 6);
    assert_eq!(meant(0), "");
    assert_eq!(meant(1), "https://sts.googleapis.com");
    assert!(asked[1].body.contains("subject_token=their-token"));
    assert_eq!(meant(2), "https://storage.googleapis.com");
    assert_eq!(asked[2].header("authorization"), "Bearer first");
    assert_eq!(meant(3), "http://169.254.169.254");
    let far = with("http://192.0.2.1/their/token?a=b".to_owned()).unwrap_err();
    assert!(far.to_string().contains("plain http"), "{far}");
    assert_eq!(server.asked().len(), 6);
}

/// Goal: no proxy is asked for the credentials of a service on this machine, whoever asks for them.
#[test]
fn a_service_on_this_machine_is_asked_for_credentials_without_the_proxy() {
    let proxy = Local::start(|_| object());
    let giving = Local::start(|asked| match asked.line.contains("/c ") {
        true => json("AK", "2099-01-02T03:04:05Z"),
        false => (200, Vec::new(), "their-token".to_owned()),
    });
    let at = proxy.url();
    let proxies = Proxies::read(&|name| (name == "HTTP_PROXY").then(|| at.clone().into())).unwrap();
    let direct = Direct::new(None, proxies, "us-east-1").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "t").unwrap();
    let uri = giving.url() + "/c";
    let all = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri.as_str()),
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            token.to_str().unwrap(),
        ),
        ("AWS_ENDPOINT_URL", "http://192.0.2.1"),
        ("LONGSHORE_ALLOW_HTTP", "1"),
    ];
    let bucket = Bucket::connect("abc", settings(&all), || direct.clone()).unwrap();
    assert!(looked_at(&bucket).unwrap().is_some());
    assert_eq!((giving.asked().len(), proxy.asked().len()), (1, 1));
    // A token's address, which this room asks.
    let sts = giving.url() + "/v1/token";
    let more = serde_json::json!({
        "credential_source": { "url": giving.url() + "/their/token" },
        "token_url": sts,
    });
    let file = external_account(dir.path(), more);
    let all = [
        ("GOOGLE_APPLICATION_CREDENTIALS", file.as_str()),
        ("LONGSHORE_ALLOW_HTTP", "1"),
    ];
    let bucket =
        Bucket::connect("abc", settings_of(Scheme::Google, &all), || direct.clone()).unwrap();
    let refused = looked_at(&bucket).unwrap_err();
    assert!(refused.to_string().contains("has no token"), "{refused}");
    assert_eq!((giving.asked().len(), proxy.asked().len()), (3, 1));
}

/// A server whose answer never ends, and the bytes that were taken of it.
fn endless() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::<AtomicUsize>::default();
    let count = sent.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if heard(&stream).is_none() {
                continue;
            }
            let head =
                "HTTP/1.1 200 X\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";
            let mut taken = stream.write_all(head.as_bytes());
            // A client that took all of it would take this much.
            while taken.is_ok() && count.load(Ordering::Relaxed) < 256 << 20 {
                taken = stream.write_all(&[b' '; 1 << 16]);
                count.fetch_add(1 << 16, Ordering::Relaxed);
            }
        }
    });
    (address, sent)
}

/// Goal: an answer of a place of credentials that does not end takes no memory, whichever place it is.
#[test]
fn no_endless_answer_of_a_place_of_credentials_is_read() {
    let config = "[profile night]\nrole_arn = arn:r\nsource_profile = base\n";
    let keys = "[base]\naws_access_key_id = AKBASE\naws_secret_access_key = verysecret\n";
    let (dir, files) = aws_files(config, keys);
    let of_files = |more: &[(&'static str, &'static str)]| {
        let more = more.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        files.iter().cloned().chain(more).collect::<Vec<_>>()
    };
    let account = external_account(
        dir.path(),
        serde_json::json!({ "credential_source": { "url": "http://169.254.169.254/token" } }),
    );
    let exchange = external_account(
        tempfile::tempdir().unwrap().keep().as_path(),
        serde_json::json!({}),
    );
    let google = |file: &str| vec![("GOOGLE_APPLICATION_CREDENTIALS".to_owned(), file.to_owned())];
    let azure = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "acc"),
        ("AZURE_TENANT_ID", "t"),
        ("AZURE_CLIENT_ID", "c"),
        ("AZURE_CLIENT_SECRET", "s"),
    ];
    let azure = azure.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
    for (scheme, variables) in [
        (Scheme::S3, of_files(&[("AWS_PROFILE", "night")])),
        (
            Scheme::S3,
            of_files(&[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/c")]),
        ),
        (Scheme::Google, google(&account)),
        (Scheme::Google, google(&exchange)),
        (Scheme::Google, google("")),
        (Scheme::Azure, azure),
    ] {
        let (address, taken) = endless();
        let bent = Bent {
            direct: direct(),
            to: address,
        };
        let all: Vec<_> = variables
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        let bucket = Bucket::connect("abc", settings_of(scheme, &all), || bent.clone()).unwrap();
        let error = looked_at(&bucket).unwrap_err();
        let taken = taken.load(Ordering::Relaxed);
        assert!(matches!(error, Error::Credentials { .. }), "{error}");
        // The system's buffers take some, which nobody reads.
        assert!(taken < 32 << 20, "{taken} bytes for {variables:?}: {error}");
        assert!(!error.to_string().contains("verysecret"), "{error}");
    }
}

/// Goal: while a service that gives credentials is away, those that are still valid serve.
#[test]
fn credentials_that_are_still_valid_serve_while_the_service_that_gave_them_is_away() {
    let config = "[profile night]\nrole_arn = arn:r\nsource_profile = base\n";
    let keys = "[base]\naws_access_key_id = AKBASE\naws_secret_access_key = verysecret\n";
    let (_dir, files) = aws_files(config, keys);
    let given = AtomicUsize::new(0);
    let sts = Local::start(move |_| match given.fetch_add(1, Ordering::Relaxed) {
        0 => role_answer("AK0", &until(true)),
        _ => (503, Vec::new(), String::new()),
    });
    let store = Local::start(|_| object());
    let at = store.url();
    let all = with_files(
        &files,
        &[
            ("AWS_PROFILE", "night"),
            ("AWS_ENDPOINT_URL", at.as_str()),
            ("LONGSHORE_ALLOW_HTTP", "1"),
        ],
    );
    let bent = Bent {
        direct: direct(),
        to: sts.address,
    };
    let bucket = Bucket::connect("abc", settings(&all), || bent.clone()).unwrap();
    for _ in 0..3 {
        assert!(looked_at(&bucket).unwrap().is_some());
    }
    let seen = store.asked();
    assert!(
        seen.iter()
            .all(|asked| asked.header("authorization").contains("Credential=AK0/"))
    );
    // Three tries, and a pause.
    assert_eq!((seen.len(), sts.asked().len()), (3, 4));
}
